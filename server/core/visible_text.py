"""Signs that turn the direction of text are shown as signs, so that nobody reads another address than is there."""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# Embeddings, overrides and isolates in UTF-8. The letters of all languages find their direction without them, and
# an unclosed one in a sender's name turns round the address after it.
_TURNING = re.compile(rb"\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
# What a terminal would obey: control characters, and the same signs.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    """Text of strangers as one line for a terminal: what the terminal would obey is named, as `[U+001B]`."""
    return _OBEYED.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


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
