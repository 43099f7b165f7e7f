"""How answers leave that anybody may read: known again by their ETag, packed, and for pages of other sites too.

Nothing secret stands in them, and nobody's cookie or token is looked at: no length tells anything of anybody (BREACH),
and no page of another site learns more than its reader could without it.
"""

import hashlib
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, HttpResponseNotModified, StreamingHttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags
from django.utils.text import compress_sequence, compress_string
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

# Below, packing saves no packet.
_LEAST_PACKED = 1024
_READING = {"GET", "HEAD"}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "If-None-Match",
    "Access-Control-Max-Age": "86400",
}

_OF_UNCHANGED = {"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Cache-Control", "ETag", "Vary"}


class OpenAnswers(APIView):
    """A view whose answers to GET are the same for everybody."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: Any = super().finalize_response(request, response, *args, **kwargs)
        if request.method not in {*_READING, "OPTIONS"}:
            return answer
        answer.headers["Access-Control-Allow-Origin"] = "*"
        answer.headers["Access-Control-Expose-Headers"] = "ETag, X-Request-Id"
        if request.method == "OPTIONS":
            for name, value in _PREFLIGHT.items():
                answer.headers[name] = value
        elif isinstance(answer, Response):
            answer.add_post_render_callback(lambda rendered: _send(request, rendered))
        elif isinstance(answer, StreamingHttpResponse):
            _pack_stream(request, answer)
        return answer


def _send(request: Request, answer: Response) -> HttpResponse | None:
    """304 where the reader has it already; else packed. What takes its place, or None."""
    patch_vary_headers(answer, ("Accept-Encoding",))
    if answer.status_code == HTTPStatus.OK:
        # Weak: the same whether it is packed or not.
        answer.headers["ETag"] = f'W/"{hashlib.sha256(answer.content).hexdigest()[:32]}"'
        answer.headers["Cache-Control"] = "no-cache"
        if _is_known(request, answer.headers["ETag"]):
            same = HttpResponseNotModified()
            for name in _OF_UNCHANGED & answer.headers.keys():
                same.headers[name] = answer.headers[name]
            return same
    if len(answer.content) >= _LEAST_PACKED and _takes_gzip(request):
        answer.content = compress_string(answer.content)
        answer.headers["Content-Encoding"] = "gzip"
    return None


def _is_known(request: Request, etag: str) -> bool:
    """By the weak comparison of RFC 9110: proxies that pack answers weaken what they pass on."""
    given = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in given or etag in {f"W/{one.removeprefix('W/')}" for one in given}


def _pack_stream(request: Request, answer: StreamingHttpResponse) -> None:
    patch_vary_headers(answer, ("Accept-Encoding",))
    if _takes_gzip(request) and not answer.is_async:
        plain: Any = answer.streaming_content
        answer.streaming_content = compress_sequence(plain)
        answer.headers["Content-Encoding"] = "gzip"


def _takes_gzip(request: Request) -> bool:
    """Whether the reader names it, and not with a weight of nothing (RFC 9110, 12.5.3)."""
    for part in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
