"""Everything that the page of one build tells."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.builds.models import Artifact, Build, ConfigFragment
from server.builds.recipes import recipe_of
from server.builds.selectors import same_code_as
from server.core.errors import DomainError
from server.dashboard.selectors.attempts import AttemptRow, attempt_rows
from server.dashboard.selectors.blaming import Blamed, blamed_in
from server.dashboard.selectors.history import History, history
from server.dashboard.selectors.machines import SessionRow, session_rows
from server.dashboard.selectors.people import people_with
from server.reports.history import build_history

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
