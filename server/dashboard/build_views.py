"""The page of one build, and the files that came out of it."""

from typing import TypeVar

from django import forms
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_POST, require_safe

from server.builds.models import Artifact, Build
from server.builds.reading import ArtifactStream
from server.builds.serving import serve_artifact
from server.core import clock
from server.core.errors import DomainError
from server.dashboard.selectors.builds import PERMISSION, READABLE, build_page
from server.lab.asking_again import ask_again

_CONFLICT, _GONE = 409, 410
Answer = TypeVar("Answer", bound=HttpResponseBase)


class AgainForm(forms.Form):
    reason = forms.CharField(max_length=500, strip=True, error_messages={"required": "Say why it failed falsely."})


@require_safe
def build(request: HttpRequest, build_id: int) -> HttpResponse:
    return _build(request, build_id)


@require_POST
def again(request: HttpRequest, build_id: int) -> HttpResponse:
    """A person with the right asks for a failed build again; the reason becomes part of its history."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("build", args=[build_id]), reverse("admin:login"))
    return _again(request, build_id)


@permission_required(PERMISSION, raise_exception=True)
def _again(request: HttpRequest, build_id: int) -> HttpResponse:
    row = get_object_or_404(Build, pk=build_id)
    form = AgainForm(request.POST)
    if not form.is_valid():
        return _build(request, build_id, problem=" ".join(map(str, form.errors["reason"])), status=400)
    try:
        ask_again(row, form.cleaned_data["reason"], actor=request.user.get_username())
    except DomainError as error:
        return _build(request, build_id, problem=error.message, status=_CONFLICT)
    return redirect("build", build_id=build_id)


def _build(request: HttpRequest, build_id: int, *, problem: str = "", status: int = 200) -> HttpResponse:
    page = build_page(build_id, logs=request.user.is_staff)
    if page is None:
        raise Http404(f"There is no build {build_id}.")
    context = {"now": clock.now(), "build": page, "problem": problem}
    return render(request, "dashboard/build.html", context, status=status)


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
