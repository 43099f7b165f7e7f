"""What stands around each request: an id in its log lines; signs that turn text round are shown as signs."""

import re
import time
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

log = structlog.get_logger(__name__)
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class LogContextMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.monotonic()
        response = self.get_response(request)
        response.headers["X-Request-Id"] = request_id
        log.info(
            "request",
            method=request.method,
            path=request.path,
            status=response.status_code,
            milliseconds=round((time.monotonic() - started) * 1000, 1),
        )
        return response


# Embeddings, overrides and isolates in UTF-8. The letters of all languages find their direction without them, and
# an unclosed one in a sender's name turns round the address after it.
_TURNING = re.compile(rb"\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
# What a terminal would obey: control characters, and the same signs. Looked up in C: there may be millions of them.
_OBEYED = (range(0x20), range(0x7F, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A))
_NAMES = {sign: f"[U+{sign:04X}]" for signs in _OBEYED for sign in signs}
_NAMES_IN_TEXT = {sign: name for sign, name in _NAMES.items() if chr(sign) not in "\n\t"}


def for_terminal(text: str) -> str:
    """Text of strangers as one line for a terminal: what the terminal would obey is named, as `[U+001B]`."""
    return text.translate(_NAMES)


def for_reading(text: str) -> str:
    """The same of a text of many lines, which keeps its ends of lines and tabs."""
    return text.translate(_NAMES_IN_TEXT)


class VisibleTextMiddleware:
    """Pages name such a sign (`[U+202E]`) instead of obeying it; downloads and JSON keep it as it is."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not response.streaming and response.headers.get("Content-Type", "").startswith("text/html"):
            shown = _TURNING.sub(_named, response.content)
            if shown != response.content:
                response.content = shown
                response.headers["Content-Length"] = str(len(shown))
        return response


def _named(match: re.Match[bytes]) -> bytes:
    return f"[U+{ord(match[0].decode()):04X}]".encode()
