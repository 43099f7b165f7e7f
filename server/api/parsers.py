"""Bodies as they are sent: plain or as gzip, never larger than the service is ready to hold, of the described types."""

import gc
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ParseError, UnsupportedMediaType, ValidationError
from rest_framework.fields import empty
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.request import Request

from server.core.errors import DomainError

# What this service takes in Content-Encoding; said in every answer (RFC 7694).
ACCEPTED = "gzip"
_CHUNK = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS
# What agents send of a machine has some ten levels.
_DEEPEST = 30
# A boot that is kept whole has 100,000 values, and some ten thousand measurements and notes of seven names each. Every
# part costs the processor microseconds and the memory many times its bytes, however well it was packed.
_MOST_PARTS = {b"{": 100_000, b"[": 100_000, b":": 300_000, b",": 600_000}
_MOST_QUOTES = 1_000_000


class AgentJSONParser(JSONParser):
    """JSON, at most DATA_UPLOAD_MAX_MEMORY_SIZE bytes of it once it is unpacked, and of so many parts.

    A small archive can hold very much.
    """

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        assert parser_context is not None
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        _make_room()
        body = bytearray()
        for chunk in plain_chunks(stream, parser_context["request"]):
            body += chunk
            if len(body) > most:
                raise DomainError("too-large", f"the body is larger than {most} bytes")
        _kept.append(len(body))
        if not (_has_few_parts(body) or _has_few_parts_outside_strings(body)):
            most_parts = ", ".join(f"{number} of {mark.decode()}" for mark, number in _MOST_PARTS.items())
            raise DomainError("too-large", f"the body has too many parts: more than {most_parts}")
        # JSON is UTF-8 (RFC 8259). A charset of the sender's choice could be one in which the parts count otherwise,
        # or a codec that unpacks once more.
        context = {**parser_context, "encoding": "utf-8"}
        try:
            parsed: dict[str, Any] = super().parse(BytesIO(body), media_type, context)
        except RecursionError:
            raise _too_deep() from None
        if not _is_flat(parsed):
            raise _too_deep()
        return parsed


# Bytes of bodies since rubbish was last looked for.
_kept: list[int] = []
_MOST_KEPT = 4 * 1024 * 1024


def _make_room() -> None:
    """A request and its forms refer to each other in circles, and their body stays until rubbish is looked for."""
    if sum(_kept) >= _MOST_KEPT:
        _kept.clear()
        gc.collect()


def _has_few_parts(body: bytes | bytearray) -> bool:
    return all(body.count(mark) <= number for mark, number in _MOST_PARTS.items())


def _has_few_parts_outside_strings(body: bytes | bytearray) -> bool:
    """The same without what stands in strings: a console may show nothing but brackets."""
    if body.count(b'"') > _MOST_QUOTES:
        return False
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    return _has_few_parts(b"".join(pieces[::2]))


def _is_flat(value: Any) -> bool:
    """Whether nothing in `value` is nested deeper than anybody writes; what reads it may then do so by recursion."""
    layer = [value]
    for _ in range(_DEEPEST):
        items = (item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, dict | list))
        layer = [item for some in items for item in some if isinstance(item, dict | list)]
        if not layer:
            return True
    return False


def _too_deep() -> ParseError:
    return ParseError(f"JSON parse error - nested too deeply, more than {_DEEPEST} levels")


class BytesParser(BaseParser):
    """Hands the request's stream to the view untouched: a kernel image is never held in memory."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, *_: Any, **__: Any) -> Any:
        return stream


def plain_chunks(stream: Any, request: Request) -> Iterator[bytes]:
    """The body in pieces of at most 64 KiB, unpacked if it came packed. Its whole size is for the caller to limit."""
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        while chunk := stream.read(_CHUNK):
            yield chunk
    elif encoding == "gzip":
        yield from _unpacked(stream)
    else:
        raise UnsupportedMediaType(encoding, detail=f"Content-Encoding may be {ACCEPTED}.")


def discard_rest(request: Request, most: int) -> None:
    """Take what is left of the body, up to `most` bytes, and drop it.

    Whoever is still sending reads no answer, and a connection closed on unread bytes is reset: without this an agent
    with a large body would never hear that it is there already, or refused, and send it again for ever.
    """
    stream, left = request.stream, most
    with suppress(OSError):
        while stream is not None and left > 0 and (chunk := stream.read(min(_CHUNK, left))):
            left -= len(chunk)


def _unpacked(stream: Any) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP)
    while not unpacker.eof:
        packed = unpacker.unconsumed_tail or stream.read(_CHUNK)
        try:
            chunk = unpacker.decompress(packed, _CHUNK)
        except zlib.error as error:
            raise ParseError(f"the body is no gzip: {error}") from error
        if not packed and not chunk:
            raise ParseError("the body ends in the middle of its gzip")
        if chunk:
            yield chunk
    if unpacker.unused_data or stream.read(1):
        raise ParseError("something follows the gzip in the body")


_Field = serializers.Field[Any, Any, Any, Any]
_TYPES: tuple[tuple[type[_Field], tuple[type, ...], str], ...] = (
    (serializers.CharField, (str,), "a string"),
    (serializers.DateTimeField, (str,), "a string"),
    (serializers.ChoiceField, (str,), "a string"),
    (serializers.BooleanField, (bool,), "true or false"),
    (serializers.IntegerField, (int, float), "a whole number"),
    (serializers.FloatField, (int, float), "a number"),
)


class BodyForm(serializers.Serializer[Any]):
    """A JSON object, each value of the type that the description names.

    A field alone takes whatever could be written as its type: `"no"` for false, 5 for a text.
    """

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            wrong = {name: told for name, field in self.fields.items() if (told := _strange(field, data.get(name)))}
            if wrong:
                raise ValidationError({name: [f"This is not {told}."] for name, told in wrong.items()})
        return super().to_internal_value(data)


def _strange(field: Any, value: Any) -> str:
    """What `value` had to be and is not; whether it may be null or missing is for the field to say."""
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        # One that is too long is refused as such, before anything in it is looked at.
        few = value if field.max_length is None or len(value) <= field.max_length else ()
        return next((f"a list of which each is {told}" for one in few if (told := _strange(field.child, one))), "")
    for of, types, told in _TYPES:
        if value is not None and isinstance(field, of):
            return "" if isinstance(value, types) and isinstance(value, bool) == (bool in types) else told
    return ""


class AgentText(serializers.CharField):
    """Text off a console or out of a log."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_blank=True, trim_whitespace=False, default="", **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation(clean_text(data))


class Sentence(AgentText):
    """Text that is cut where others are refused: a result must not be lost because there is much to say about it."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self._longest = longest

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation(data[: self._longest] if isinstance(data, str) else data)


def clean_text(value: Any) -> Any:
    """`value` with every string in it fit for PostgreSQL: no NUL, no lone surrogate. A guest's console can hold both.

    Raises ValidationError for a number that is none: JSON's 1e999 is read as infinite.
    """
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean_text(name): clean_text(item) for name, item in value.items()}
    if isinstance(value, list):
        # Measured values, by the ten thousand.
        if set(map(type, value)) == {float} and all(map(math.isfinite, value)):
            return value
        return [clean_text(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise serializers.ValidationError({"numbers": ["a number is not finite"]})
    return value


class AgentForm(BodyForm):
    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(clean_text(data) if isinstance(data, dict) else data)
