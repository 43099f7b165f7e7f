"""Builders: what they can build, how they are, and what they built last."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.builds.models import Build
from server.dashboard.selectors.attempts import AttemptRow, attempt_rows, unclaimed_rows
from server.dashboard.selectors.host_actions import Actions, actions_of
from server.dashboard.selectors.hosts import Audit, HostStatus, NodeRow, audit_of, host_status, node_of
from server.lab.models import LATEST_FIRST, Attempt, Builder, builds_at_work

_LATEST = 25
_TREES = 10
# Among so many of its last builds: what it built longer ago has given its room to others.
_LOOKED_AT = 500
_BUILT_COLUMNS = (
    "key",
    "state",
    "state_since",
    "reason",
    "build__state",
    "build__reason",
    "build__seconds",
    "build__arch",
    "build__config__name",
    "build__revision__sha",
    "build__revision__subject",
    "build__revision__tree__name",
)
_MADE = (Build.State.BUILT, Build.State.EXPIRED)


@dataclass(frozen=True, slots=True)
class BuilderRow:
    """No `toolchains` means all of them; `building` counts the builds it has now, of `capacity`."""

    host: HostStatus
    arches: tuple[str, ...]
    toolchains: tuple[str, ...]
    capacity: int
    jobs: int
    building: int


@dataclass(frozen=True, slots=True)
class BuiltRow:
    """One build that it made or tried."""

    build: int
    key: str
    tree: str
    sha: str
    subject: str
    config: str
    arch: str
    state: str
    reason: str
    seconds: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class WarmRow:
    """A tree and configuration that it built before: its work tree there makes the next such build a short one."""

    tree: str
    config: str
    arch: str
    build: int
    at: datetime


@dataclass(frozen=True, slots=True)
class BuilderPage:
    row: BuilderRow
    actions: Actions
    audit: Audit
    node: NodeRow | None
    active: tuple[AttemptRow, ...]
    unclaimed: tuple[AttemptRow, ...]
    warm: tuple[WarmRow, ...]
    built: tuple[BuiltRow, ...]


def builder_rows() -> tuple[BuilderRow, ...]:
    """One query, by name."""
    rows = Builder.objects.annotate(building=builds_at_work()).order_by("name")
    return tuple(_row(builder, builder.building) for builder in rows)


def builder_page(name: str, *, logs: bool) -> BuilderPage | None:
    builder = Builder.objects.filter(name=name).first()
    if builder is None:
        return None
    active = attempt_rows(Q(builder=builder, state__in=Attempt.ACTIVE), logs=logs)
    return BuilderPage(
        row=_row(builder, len(active)),
        actions=actions_of(builder),
        audit=audit_of(builder),
        node=node_of(builder),
        active=active,
        unclaimed=unclaimed_rows(Q(builder=builder)) if logs else (),
        warm=_warm(builder),
        built=_built(builder),
    )


def _row(builder: Builder, building: int) -> BuilderRow:
    return BuilderRow(
        host=host_status(builder),
        arches=tuple(builder.arches),
        toolchains=tuple(builder.toolchains),
        capacity=builder.capacity,
        jobs=builder.jobs,
        building=building,
    )


def _built(builder: Builder) -> tuple[BuiltRow, ...]:
    rows = Attempt.objects.filter(builder=builder, build__isnull=False).exclude(state__in=Attempt.ACTIVE)
    rows = rows.select_related("build__revision__tree", "build__config").only(*_BUILT_COLUMNS)
    return tuple(
        BuiltRow(
            build=build.pk,
            key=row.key,
            tree=build.revision.tree.name,
            sha=build.revision.sha,
            subject=build.revision.subject,
            config=build.config.name,
            arch=build.arch,
            state=build.state if row.state == Attempt.State.DONE else row.state,
            reason=row.reason or build.reason,
            seconds=build.seconds if row.state == Attempt.State.DONE else None,
            at=row.state_since,
        )
        for row in rows.order_by(LATEST_FIRST)[:_LATEST]
        if (build := row.build) is not None
    )


def _warm(builder: Builder) -> tuple[WarmRow, ...]:
    """The last build of each tree and configuration among its latest attempts, the latest first."""
    kind = ("build__revision__tree__name", "build__config__name", "build__arch")
    latest = Attempt.objects.filter(builder=builder, build__isnull=False).order_by(LATEST_FIRST)
    columns = latest.values_list(*kind, "build_id", "state_since", "state", "build__state")
    found: dict[tuple[str, str, str], WarmRow] = {}
    for tree, config, arch, build, at, state, build_state in columns[:_LOOKED_AT]:
        if state == Attempt.State.DONE and build_state in _MADE and len(found) < _TREES:
            found.setdefault((tree, config, arch), WarmRow(tree, config, arch, build, at))
    return tuple(found.values())
