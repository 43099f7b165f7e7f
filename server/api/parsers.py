"""Bodies that agents send: plain or as gzip, never larger than the service is ready to hold."""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

from django.conf import settings
from rest_framework.exceptions import ParseError, UnsupportedMediaType
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
        body = bytearray()
        for chunk in plain_chunks(stream, parser_context["request"]):
            body += chunk
            if len(body) > most:
                raise DomainError("too-large", f"the body is larger than {most} bytes")
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
