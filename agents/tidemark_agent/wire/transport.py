"""HTTP to the service: bodies packed and sent, answers read within limits."""

import gzip
import http.client
import json
import re
import shutil
import ssl
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast
from urllib.parse import urlsplit

from tidemark_agent.errors import InfrastructureError, RefusedError, UnauthorizedError

# Below this the header and the work cost more than the network.
_SMALLEST = 1024
# Kernel images and archives are compressed already: their start tells.
_TRIED = 64 * 1024
_WORTH = 0.8
_LEVEL = 6
# JSON can write them, yet no database stores them as text.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_body(body: Mapping[str, Any]) -> bytes:
    return json.dumps(storable(body)).encode()


def packed(data: bytes) -> bytes | None:
    """`data` as gzip, or None where that is not worth it. The same data gives the same bytes."""
    if len(data) < _SMALLEST:
        return None
    small = gzip.compress(data, _LEVEL, mtime=0)
    return small if len(small) < len(data) * _WORTH else None


@contextmanager
def packed_file(source: Path) -> Iterator[IO[bytes] | None]:
    """The content of `source` as gzip, in a file that is gone afterwards; None where that is not worth it.

    Without room on the disk it is None, too: the file can go as it is.
    """
    with source.open("rb") as stream:
        start = stream.read(_TRIED)
        if len(start) < _SMALLEST or len(zlib.compress(start, 1)) > len(start) * _WORTH:
            yield None
            return
        stream.seek(0)
        small = _new_file(source.parent)
        try:
            yield small if small is not None and _is_packed(stream, small) else None
        finally:
            if small is not None:
                # What a full disk did not take is still in the buffer, and closing tries, and fails, once more.
                with suppress(OSError):
                    small.close()


def _new_file(directory: Path) -> IO[bytes] | None:
    try:
        return tempfile.TemporaryFile(dir=directory)
    except OSError:
        return None


def _is_packed(stream: IO[bytes], small: IO[bytes]) -> bool:
    try:
        with gzip.GzipFile(fileobj=small, mode="wb", compresslevel=_LEVEL, mtime=0) as packing:
            shutil.copyfileobj(stream, packing)
        small.flush()
        small.seek(0)
    except OSError:
        return False
    return True


def storable(value: Any) -> Any:
    """`value` with every text in it such that a database can store it: texts may come from a tested kernel."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {storable(name): storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# For the connection and for each piece of the answer.
TIMEOUT_SECONDS = 30
# The server's own limit for artifacts is half of this.
LONGEST_FILE = 1024 * 1024 * 1024
_LONGEST_ANSWER = 8 * 1024 * 1024
_CHUNK = 1 << 16
# A server that sends a byte now and then must not hold the agent for ever: this long, and longer for what is large.
_MOST_SECONDS = 120.0
_SLOWEST_BYTES_PER_SECOND = 32 * 1024
# Refusals that time cures: request timeout, too early, too many requests.
_TEMPORARY = frozenset({408, 425, 429})
_UNAUTHORIZED = frozenset({401, 403})
_UNSUPPORTED = 415
_FIRST_REDIRECT, _FIRST_REFUSAL, _FIRST_SERVER_ERROR = 300, 400, 500
# Visible ASCII: anything else cannot stand in a header.
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")


class TemporaryError(Exception):
    """No usable answer; asking again may help."""


class ServerError(TemporaryError):
    """Somebody answered and broke, or it was not the service that answered."""


class PlainWantedError(TemporaryError):
    """The server takes no compressed bodies."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class Answer:
    """What a call that went well gave. `value` is empty for a file; `takes_gzip` is what the server says it accepts."""

    value: dict[str, Any]
    takes_gzip: bool


def build_opener(server: str, ca_file: Path | None = None) -> urllib.request.OpenerDirector:
    """What opens connections to `server`. Certificates are always checked, against `ca_file` too if there is one.

    Raises InfrastructureError when that file cannot be used.
    """
    handlers: list[urllib.request.BaseHandler] = [NoRedirects()]
    address = urlsplit(server)
    if address.hostname in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    if address.scheme == "https":
        context = ssl.create_default_context()
        if ca_file is not None:
            try:
                context.load_verify_locations(cafile=ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise InfrastructureError(f"certificates in {ca_file} cannot be used: {error}") from error
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def usable_token(text: str) -> str:
    """`text` without blanks around it; raises TemporaryError if it is none: the file may be being written."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise TemporaryError("the token file holds no token")
    return token


def exchange(
    opener: urllib.request.OpenerDirector,
    request: urllib.request.Request,
    target: IO[bytes] | None = None,
) -> Answer:
    """Send `request`; the body of the answer goes to `target`, or is JSON.

    Raises TemporaryError when asking again may help and RefusedError when it cannot. Errors of `target` are the
    caller's: they are OSErrors, which those of the network never are here.
    """
    try:
        answer = opener.open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        with error:
            _raise_sorted(error)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise TemporaryError(_told(error)) from error
    with answer:
        takes_gzip = "gzip" in answer.headers.get("Accept-Encoding", "")
        if target is None:
            return Answer(_object(_whole(answer)), takes_gzip)
        for piece in pieces(answer, LONGEST_FILE):
            target.write(piece)
        return Answer({}, takes_gzip)


def pieces(answer: http.client.HTTPResponse, most: int) -> Iterator[bytes]:
    """The body in pieces; raises TemporaryError if it is cut off, comes too slowly or has more than `most` bytes."""
    size, started = 0, time.monotonic()
    while True:
        try:
            piece = answer.read1(_CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise TemporaryError(f"the answer broke off: {_told(error)}") from error
        if not piece:
            break
        size += len(piece)
        if size > most:
            raise ServerError(f"the answer is larger than {most} bytes")
        if time.monotonic() - started > _MOST_SECONDS + size / _SLOWEST_BYTES_PER_SECOND:
            raise TemporaryError("the answer comes too slowly")
        yield piece
    # `length` is what is still to come by Content-Length; reading pieces tells of no lack by itself.
    if answer.length:
        raise TemporaryError(f"the answer broke off: {answer.length} bytes are missing")


def _whole(answer: http.client.HTTPResponse) -> bytes:
    return b"".join(pieces(answer, _LONGEST_ANSWER))


def _object(body: bytes) -> dict[str, Any]:
    """A page of somebody in between, which comes with a 200 as well, is no answer."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ServerError(f"the answer is no JSON: {_start(body)}") from error
    if not isinstance(value, dict):
        raise ServerError(f"the answer is no JSON object: {_start(body)}")
    return value


def _raise_sorted(error: urllib.error.HTTPError) -> NoReturn:
    """Raise what an answer that is no success means. Only the service's own word is a refusal.

    A page of a proxy or of another service at this address is no problem+json: nothing is refused for good by it.
    """
    problem = _problem(error)
    code = str(problem.get("code", "http-error"))
    message = str(problem.get("detail") or problem.get("title") or error.reason)[:500]
    told = f"{error.code} {code}: {message}"
    if error.code < _FIRST_REFUSAL:
        where = error.headers.get("Location", "nowhere")[:200]
        raise ServerError(f"{error.code}: the server points to {where!r}; give that address if it is the right one")
    if error.code >= _FIRST_SERVER_ERROR:
        raise ServerError(told)
    if error.code in _TEMPORARY:
        raise TemporaryError(told)
    if error.code == _UNSUPPORTED:
        raise PlainWantedError(told)
    if error.code in _UNAUTHORIZED:
        raise UnauthorizedError(error.code, code, message)
    if "code" not in problem:
        raise ServerError(f"{told} (not the service's own answer)")
    raise RefusedError(error.code, code, message)


def _problem(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        # The answer itself, of which the error is a wrapper: one that drips is given up as any other.
        value = json.loads(_whole(cast(http.client.HTTPResponse, error.fp)))
    except (ValueError, RecursionError, TemporaryError):
        return {}
    return value if isinstance(value, dict) else {}


def _told(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({reason.verify_message}); see ca_file in agent.toml"
    return str(error) or type(error).__name__


def _start(body: bytes) -> str:
    return repr(body[:80].decode("utf-8", "replace"))
