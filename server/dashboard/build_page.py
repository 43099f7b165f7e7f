"""The page of one build, the files that came out of it, and asking for it again."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django import forms
from django.contrib.auth.views import redirect_to_login
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_POST, require_safe

from server.builds.expiry import serve_artifact
from server.builds.models import Artifact, Build, ConfigFragment
from server.builds.storage import ArtifactStream
from server.builds.wanted import recipe_of, same_code_as
from server.core import clock
from server.core.errors import DomainError
from server.dashboard.frame.access import needs
from server.dashboard.rows.host_status import SessionRow, people_with, session_rows
from server.dashboard.rows.work import AttemptRow, Blamed, History, attempt_rows, blamed_in, history
from server.lab.care import ask_again
from server.reports.progress import build_history

PERMISSION = "builds.change_build"
_SESSIONS = 25
_TWINS = 10


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """`readable` ones open in a browser as text; `removed_at` is set once the file is gone."""

    kind: str
    kind_label: str
    sha256: str
    size: int
    readable: bool
    removed_at: datetime | None
    removal: str


@dataclass(frozen=True, slots=True)
class FragmentRow:
    """A shared fragment of the configuration; `lines` is None when no fragment has this name any more."""

    name: str
    lines: str | None


@dataclass(frozen=True, slots=True)
class TwinRow:
    """Another build whose kernel runs the same code."""

    id: int
    sha: str
    subject: str
    config: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides the kernel besides its source, as it is now; `edited` when it was another when this was built."""

    config: str
    base: str
    layout_of: str
    perf: bool
    fragments: tuple[FragmentRow, ...]
    own_lines: str
    toolchain: str
    compiler: str
    family: str
    arch: str
    edited: bool


@dataclass(frozen=True, slots=True)
class BuildPage:
    id: int
    tree: str
    sha: str
    tree_sha: str
    subject: str
    recipe: Recipe
    state: str
    state_label: str
    state_since: datetime
    reason: str
    trace: str
    given_up: bool
    pinned: bool
    first_error: str
    log_tail: str
    build_id: str
    text_hash: str
    compiler_version: str
    seconds: float | None
    created_at: datetime
    used_at: datetime | None
    artifacts: tuple[ArtifactRow, ...]
    twins: tuple[TwinRow, ...]
    blamed: tuple[Blamed, ...]
    sessions: tuple[SessionRow, ...]
    attempts: tuple[AttemptRow, ...]
    history: History
    # How many people may ask for it again; None where there is nothing to ask for.
    askers: int | None

    @property
    def removed(self) -> int:
        """How many of its files are gone."""
        return sum(artifact.removed_at is not None for artifact in self.artifacts)


# These are text; what else a build leaves is for programs.
READABLE = frozenset({Artifact.Kind.CONFIG, Artifact.Kind.SYSTEM_MAP, Artifact.Kind.LOG})


def build_page(build_id: int, *, logs: bool) -> BuildPage | None:
    """`logs` are those of its attempts' agents."""
    related = ("revision__tree", "config__layout_of", "toolchain")
    build = Build.objects.select_related(*related).filter(pk=build_id).first()
    if build is None:
        return None
    used = Q(base_build=build) | Q(patched_build=build)
    return BuildPage(
        id=build.pk,
        tree=build.revision.tree.name,
        sha=build.revision.sha,
        tree_sha=build.tree_sha,
        subject=build.revision.subject,
        recipe=_recipe(build),
        state=build.state,
        state_label=Build.State(build.state).label,
        state_since=build.state_since,
        reason=build.reason,
        trace=build.trace,
        given_up=build.given_up,
        pinned=build.pinned,
        first_error=build.first_error,
        log_tail=build.log_tail,
        build_id=build.build_id,
        text_hash=build.text_hash,
        compiler_version=build.compiler_version,
        seconds=build.seconds,
        created_at=build.created_at,
        used_at=build.used_at,
        artifacts=_artifacts(build),
        twins=_twins(build),
        blamed=blamed_in(build),
        sessions=session_rows(used, limit=_SESSIONS),
        attempts=attempt_rows(Q(build=build), logs=logs),
        history=history(build_history(build), fold=False),
        askers=people_with(PERMISSION) if build.state == Build.State.FAILED else None,
    )


def _recipe(build: Build) -> Recipe:
    config, toolchain = build.config, build.toolchain
    texts = dict(ConfigFragment.objects.filter(name__in=config.fragments).values_list("name", "lines"))
    return Recipe(
        config=config.name,
        base=config.base,
        layout_of=config.layout_of.name if config.layout_of else "",
        perf=config.perf,
        fragments=tuple(FragmentRow(name, texts.get(name)) for name in config.fragments),
        own_lines=config.fragment,
        toolchain=toolchain.name,
        compiler=toolchain.compiler,
        family=toolchain.family,
        arch=build.arch,
        edited=_was_edited(build),
    )


def _was_edited(build: Build) -> bool:
    """A configuration that cannot be read any more was edited, too."""
    try:
        return recipe_of(build.config, build.toolchain) != build.recipe
    except DomainError:
        return True


def _artifacts(build: Build) -> tuple[ArtifactRow, ...]:
    return tuple(
        ArtifactRow(
            kind=row.kind,
            kind_label=Artifact.Kind(row.kind).label,
            sha256=row.sha256,
            size=row.size,
            readable=row.kind in READABLE,
            removed_at=row.removed_at,
            removal=row.removal,
        )
        for row in Artifact.objects.filter(build=build).order_by("id")
    )


def _twins(build: Build) -> tuple[TwinRow, ...]:
    return tuple(
        TwinRow(row.pk, row.revision.sha, row.revision.subject, row.config.name) for row in same_code_as(build, _TWINS)
    )


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
        return redirect_to_login(reverse("build", args=[build_id]), reverse("login"))
    return _again(request, build_id)


@needs(PERMISSION)
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
