"""Builders: what they can build, how they are, and what they built last."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Q, Window
from django.db.models.functions import RowNumber

from server.builds.models import Build
from server.dashboard.selectors.attempts import AttemptRow, attempt_rows
from server.dashboard.selectors.host_actions import Actions, actions_of
from server.dashboard.selectors.hosts import Audit, HostStatus, NodeRow, audit_of, host_status, node_of
from server.lab.models import Attempt, Builder

_LATEST = 25
_TREES = 10
_NAMES = ("build__revision__tree", "build__config")
_LONG = ("log", "build__log_tail", "build__first_error", "build__config__fragment")
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
    warm: tuple[WarmRow, ...]
    built: tuple[BuiltRow, ...]


def builder_rows() -> tuple[BuilderRow, ...]:
    """One query, by name: what is grouped has no order of its own."""
    active = Count("attempts", filter=Q(attempts__state__in=Attempt.ACTIVE))
    return tuple(
        _row(builder, builder.building) for builder in Builder.objects.annotate(building=active).order_by("name")
    )


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


def _ended(builder: Builder) -> Q:
    return Q(builder=builder, build__isnull=False) & ~Q(state__in=Attempt.ACTIVE)


def _built(builder: Builder) -> tuple[BuiltRow, ...]:
    rows = Attempt.objects.filter(_ended(builder)).select_related(*_NAMES).defer(*_LONG)
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
        for row in rows.order_by("-id")[:_LATEST]
        if (build := row.build) is not None
    )


def _warm(builder: Builder) -> tuple[WarmRow, ...]:
    """The last build of each tree and configuration, the latest first."""
    kind = ["build__revision__tree_id", "build__config_id", "build__arch"]
    place = Window(RowNumber(), partition_by=kind, order_by=F("id").desc())
    done = Attempt.objects.filter(_ended(builder), state=Attempt.State.DONE, build__state__in=_MADE)
    rows = done.annotate(place=place).filter(place=1).select_related(*_NAMES).defer(*_LONG)
    return tuple(
        WarmRow(build.revision.tree.name, build.config.name, build.arch, build.pk, row.state_since)
        for row in rows.order_by("-id")[:_TREES]
        if (build := row.build) is not None
    )
