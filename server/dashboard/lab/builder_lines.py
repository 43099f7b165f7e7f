"""Builders as rows of tables, and what the page of one tells."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.builds.models import Build
from server.core.rows.together import read_together
from server.dashboard.rows.host_status import (
    BUILDER_PERMISSION,
    Actions,
    Audit,
    HostStatus,
    actions_of,
    asked_of_audit,
    asked_of_people,
    audit,
    host_status,
)
from server.dashboard.rows.work import AttemptRow, attempt_rows, unclaimed_rows
from server.lab.models import LATEST_FIRST, Attempt, Builder, builds_at_work
from server.lab.port import Node, dispatcher

_LATEST_BUILDS = 25
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
    node: Node | None
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
    people, *lines = read_together(asked_of_people(BUILDER_PERMISSION), *asked_of_audit(builder))
    return BuilderPage(
        row=_row(builder, len(active)),
        actions=actions_of(builder, len(people)),
        audit=audit(lines),
        node=dispatcher().node(builder.node_name),
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
        for row in rows.order_by(LATEST_FIRST)[:_LATEST_BUILDS]
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
