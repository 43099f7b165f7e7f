"""How answers leave that anybody may read: known again by their ETag, packed, and for pages of other sites too.

Nothing secret stands in them, and nobody's cookie or token is looked at: no length tells anything of anybody (BREACH),
and no page of another site learns more than its reader could without it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import brotli
from django.http import HttpResponse, HttpResponseNotModified, StreamingHttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.http import http_date, parse_etags, parse_http_date_safe
from django.utils.text import compress_sequence, compress_string
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.core import clock
from server.core.rows.kept import ANSWERS, Kept, address_of

# Below, packing saves no packet.
_LEAST_PACKED = 1024
# Of 11: smaller than gzip's usual, in the same time.
_BROTLI_LEVEL = 4
_READING = {"GET", "HEAD"}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "If-None-Match",
    "Access-Control-Max-Age": "86400",
}

_OF_UNCHANGED = {
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Cache-Control",
    "ETag",
    "Last-Modified",
    "Link",
    "Vary",
}
_OF_KEPT = (_OF_UNCHANGED - {"Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}) | {
    "Content-Encoding",
    "Content-Type",
}
# Times of HTTP are whole seconds, and a row shows a while after the time that it bears: what is newer tells none.
_SETTLED = timedelta(minutes=1)


class _GivenAgain(Exception):  # noqa: N818 (no error: it leaves the framework's way before the view is asked)
    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.kept = kept


class OpenAnswers(APIView):
    """A view whose answers to GET are the same for everybody.

    With `keeps` they tell stored rows alone and nothing of the time of asking, and many ask for the same at once: a
    page that was just mailed to a list, a script in each of its readers' hands.
    """

    keeps = False
    _version = ""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.keeps and request.method == "GET":
            kept, self._version = ANSWERS.find(_question(request))
            if kept is not None:
                raise _GivenAgain(kept)

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, _GivenAgain):
            answer = HttpResponse(exc.kept.content)
            for name, value in exc.kept.headers.items():
                answer.headers[name] = value
            return _unchanged(self.request, answer) or answer
        self._leave()
        return super().handle_exception(exc)

    def _leave(self) -> None:
        if self._version:
            ANSWERS.leave(_question(self.request))
            self._version = ""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: Any = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(answer, Response) and (answer.exception or request.method == "OPTIONS"):
            # Whatever form was asked for, a problem is JSON.
            answer.accepted_renderer = JSONRenderer()
        if request.method not in {*_READING, "OPTIONS"}:
            return answer
        answer.headers["Access-Control-Allow-Origin"] = "*"
        answer.headers["Access-Control-Expose-Headers"] = "ETag, Last-Modified, Link, X-Request-Id"
        if request.method == "OPTIONS":
            for name, value in _PREFLIGHT.items():
                answer.headers[name] = value
        elif isinstance(answer, Response):
            answer.add_post_render_callback(lambda rendered: _send(request, rendered, self._version))
        elif isinstance(answer, StreamingHttpResponse):
            self._leave()
            return _stream(request, answer)
        return answer


def changed_at(answer: HttpResponse | StreamingHttpResponse, at: datetime | None) -> None:
    """Say when what is told was last changed, where that is long enough ago to be sure."""
    if at is not None and at <= clock.now() - _SETTLED:
        answer.headers["Last-Modified"] = http_date(at.timestamp())


def _question(request: Request) -> tuple[str, ...]:
    """All that an answer depends on beside the data."""
    return *address_of(request), request.accepted_renderer.media_type, _encoding(request)


def _send(request: Request, answer: Response, version: str) -> HttpResponse | None:
    """304 where the reader has it already; else packed, and kept if it has a version. What takes its place, or None."""
    patch_vary_headers(answer, ("Accept-Encoding",))
    same = None
    form = answer.accepted_renderer
    if form.charset and "Content-Type" not in answer.headers:
        # No lines at all are an answer too; the framework takes it for one without a body.
        answer.headers["Content-Type"] = f"{form.media_type}; charset={form.charset}"
    if answer.status_code == HTTPStatus.OK:
        # Weak: the same whether it is packed or not. Where the next page is may change alone.
        told = answer.content + answer.headers.get("Link", "").encode()
        answer.headers["ETag"] = f'W/"{hashlib.sha256(told).hexdigest()[:32]}"'
        same = _unchanged(request, answer)
        if same and not version:
            return same
    encoding = _encoding(request) if len(answer.content) >= _LEAST_PACKED else ""
    if encoding:
        packed = compress_string(answer.content) if encoding == "gzip" else _brotli(answer.content)
        answer.content = packed
        answer.headers["Content-Encoding"] = encoding
    if version:
        headers = {name: answer.headers[name] for name in _OF_KEPT if name in answer.headers}
        ANSWERS.keep(_question(request), Kept(version, answer.content, headers))
    return same


def _unchanged(request: Request, answer: HttpResponse | StreamingHttpResponse) -> HttpResponse | None:
    answer.headers["Cache-Control"] = "no-cache"
    if not _is_known(request, answer):
        return None
    same = HttpResponseNotModified()
    for name in _OF_UNCHANGED & answer.headers.keys():
        same.headers[name] = answer.headers[name]
    return same


def _is_known(request: Request, answer: HttpResponse | StreamingHttpResponse) -> bool:
    """By the weak comparison of RFC 9110: proxies that pack answers weaken what they pass on. A time counts where no
    ETag is given.
    """
    if (tags := request.headers.get("If-None-Match")) is not None:
        given = parse_etags(tags)
        return "*" in given or answer.headers.get("ETag") in {f"W/{one.removeprefix('W/')}" for one in given}
    since = parse_http_date_safe(request.headers.get("If-Modified-Since", ""))
    changed = parse_http_date_safe(answer.headers.get("Last-Modified", ""))
    return since is not None and changed is not None and changed <= since


def _stream(request: Request, answer: StreamingHttpResponse) -> HttpResponse | StreamingHttpResponse:
    patch_vary_headers(answer, ("Accept-Encoding",))
    if "Last-Modified" in answer.headers and (same := _unchanged(request, answer)):
        return same
    if not answer.is_async and (encoding := _encoding(request)):
        plain: Any = answer.streaming_content
        answer.streaming_content = compress_sequence(plain) if encoding == "gzip" else _brotli_sequence(plain)
        answer.headers["Content-Encoding"] = encoding
    return answer


def _brotli(content: bytes) -> bytes:
    packed: bytes = brotli.compress(content, quality=_BROTLI_LEVEL)
    return packed


def _brotli_sequence(chunks: Iterable[bytes]) -> Iterator[bytes]:
    packer = brotli.Compressor(quality=_BROTLI_LEVEL)
    for chunk in chunks:
        if packed := packer.process(chunk):
            yield packed
    yield packer.finish()


def _encoding(request: Request) -> str:
    """`br`, `gzip`, or nothing: what the reader names with the largest weight (RFC 9110, 12.5.3), `br` among equals."""
    weights: dict[str, float] = {}
    for part in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weights[name] = min([_weight(word) for word in parameters], default=1.0)
    others = weights.get("*", 0.0)
    wanted = {name: weights.get(name, others) for name in ("br", "gzip")}
    best = max(wanted, key=lambda name: wanted[name])
    plain = weights.get("identity", 0.0)
    return best if wanted[best] > 0 and wanted[best] >= plain else ""


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
