"""The page of one build, and the files that came out of it."""

from typing import TypeVar

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from server.builds.models import Artifact
from server.builds.reading import ArtifactStream
from server.builds.serving import serve_artifact
from server.core import clock
from server.core.errors import DomainError
from server.dashboard.selectors.builds import READABLE, build_page

_GONE = 410
Answer = TypeVar("Answer", bound=HttpResponseBase)


@require_safe
def build(request: HttpRequest, build_id: int) -> HttpResponse:
    page = build_page(build_id)
    if page is None:
        raise Http404(f"There is no build {build_id}.")
    return render(request, "dashboard/build.html", {"now": clock.now(), "build": page})


@require_safe
def artifact(request: HttpRequest, build_id: int, kind: str) -> HttpResponseBase:
    """One file of a build: text to read, everything else to save. No browser may take any of it for a page."""
    row = Artifact.objects.filter(build=build_id, kind=kind).first()
    if row is None:
        raise Http404(f"Build {build_id} has no {kind}.")
    if row.removed_at:
        return _gone(row, "was removed")
    # What is stored under a SHA-256 never changes.
    unchanged = get_conditional_response(request, etag=f'"{row.sha256}"')
    if unchanged is not None:
        return unchanged
    stream = _stored(row)
    return _inert(_download(row, stream)) if stream else _gone(row, "is not in the store")


def _stored(row: Artifact) -> ArtifactStream | None:
    try:
        return serve_artifact(row.sha256)
    except DomainError as error:
        if error.code != "not-found":
            raise
        return None


def _download(row: Artifact, stream: ArtifactStream) -> StreamingHttpResponse:
    text = row.kind in READABLE
    way, ending = ("inline", ".txt") if text else ("attachment", "")
    kind = "text/plain; charset=utf-8" if text else "application/octet-stream"
    response = StreamingHttpResponse(stream.chunks, content_type=kind)
    response["Content-Length"] = str(stream.size)
    response["Content-Disposition"] = f'{way}; filename="build-{row.build_id}-{row.kind}{ending}"'
    response["ETag"] = f'"{row.sha256}"'
    return response


def _gone(row: Artifact, why: str) -> HttpResponse:
    text = f"The {row.kind} of build {row.build_id} {why}.\n"
    return _inert(HttpResponse(text, content_type="text/plain; charset=utf-8", status=_GONE))


def _inert(answer: Answer) -> Answer:
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return answer
