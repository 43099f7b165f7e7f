"""What waits for builders and machines, in the order in which it will go, with names for people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from server.builds.models import Build
from server.lab.dispatch.base import Kind
from server.lab.models import Machine, PowerCycle, Session
from server.lab.purposes import purpose_of
from server.lab.scheduling import Waiting, queue_in_order
from server.sources.models import Tree

# A longer queue than this is told by its beginning.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class QueueRow:
    """`place` counts from 1: builds among all builds, sessions among those for their machine, which is `machine`."""

    place: int
    kind: str
    id: int
    title: str
    detail: str
    series_id: int | None
    tree: str
    machine: str
    since: datetime
    deadline: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Queue:
    """`total` counts all that wait; `rows` are the first of them."""

    rows: tuple[QueueRow, ...]
    total: int

    @property
    def unshown(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class _Named:
    """What a piece of work is, for people."""

    title: str
    detail: str = ""
    series_id: int | None = None
    deadline: datetime | None = None


def queue(tree: str = "") -> Queue:
    """All that waits, or what waits for the tree of this name; places are those in the whole queue."""
    trees = _trees()
    waiting = [one for one in queue_in_order() if not tree or trees.get(one.tree) == tree]
    return Queue(_rows(waiting[:_SHOWN], trees), total=len(waiting))


def queue_of(machine: Machine) -> Queue:
    """What waits for one machine."""
    waiting = [one for one in queue_in_order() if one.host == machine.name and one.kind is not Kind.BUILD]
    return Queue(_rows(waiting[:_SHOWN], _trees()), total=len(waiting))


def _trees() -> Mapping[int, str]:
    return dict(Tree.objects.values_list("id", "name"))


def _rows(waiting: Sequence[Waiting], trees: Mapping[int, str]) -> tuple[QueueRow, ...]:
    """One query for each kind of work."""
    named = {kind: name([one.id for one in waiting if one.kind is kind]) for kind, name in _NAMES.items()}
    return tuple(
        _row(one, named[one.kind][one.id], trees.get(one.tree, "")) for one in waiting if one.id in named[one.kind]
    )


def _row(waiting: Waiting, named: _Named, tree: str) -> QueueRow:
    return QueueRow(
        place=waiting.position,
        kind=waiting.kind.value,
        id=waiting.id,
        title=named.title,
        detail=named.detail,
        series_id=named.series_id,
        tree=tree,
        machine="" if waiting.kind is Kind.BUILD else waiting.host,
        since=waiting.since,
        deadline=named.deadline,
        why=waiting.reason,
    )


def _builds(ids: Sequence[int]) -> Mapping[int, _Named]:
    rows = Build.objects.filter(pk__in=ids).select_related("revision", "config")
    rows = rows.only("arch", "revision__subject", "config__name")
    return {row.pk: _Named(row.revision.subject, f"{row.config.name} {row.arch}") for row in rows}


def _sessions(ids: Sequence[int]) -> Mapping[int, _Named]:
    rows = Session.objects.filter(pk__in=ids).select_related("series", "trial", "machine").defer("series__trailers")
    return {
        row.pk: _Named(
            title=purpose_of(row),
            series_id=row.series_id,
            deadline=row.deadline_at,
        )
        for row in rows
    }


def _power_cycles(ids: Sequence[int]) -> Mapping[int, _Named]:
    return {row.pk: _Named(row.reason) for row in PowerCycle.objects.filter(pk__in=ids)}


_NAMES: Mapping[Kind, Callable[[Sequence[int]], Mapping[int, _Named]]] = {
    Kind.POWER_CYCLE: _power_cycles,
    Kind.BUILD: _builds,
    Kind.SESSION: _sessions,
}
