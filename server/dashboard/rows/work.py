"""Work as rows: attempts and their runs, state changes as lines, and who is to blame for a build."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from server.builds.blame import blame, blame_of_series
from server.builds.models import Build
from server.lab.models import LATEST_FIRST, Attempt
from server.lab.port import Run, runs_of
from server.reports.progress import ProgressStep
from server.sources.models import Series

_PARTS = ("builder", "machine", "power_cycle__machine")
# Of one piece of work; its history tells of those before.
_MOST_ATTEMPTS = 100
# Of one host: more of them fail alike.
_LATEST = 5


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """`where` names the builder, or the machine that is measured or switched off and on.

    `told_by` is the host as its agent named it. `log`, and the console of `run`, are empty but for staff.
    """

    id: int
    key: str
    adapter: str
    where: str
    told_by: str
    agent: str
    state: str
    state_label: str
    state_since: datetime
    losing: bool
    reason: str
    progress: str
    log: str
    created_at: datetime
    arrived_at: datetime | None
    lease_until: datetime | None
    deadline_at: datetime | None
    active: bool
    run: Run | None
    posts: int
    fault: str


def attempt_rows(where: Q, *, logs: bool) -> tuple[AttemptRow, ...]:
    """The last ones, oldest first; at most two queries. `logs` are for people of the lab; no other page reads them."""
    query = Attempt.objects.filter(where).select_related(*_PARTS).order_by("-id")
    query = query if logs else query.defer("log")
    rows = query[:_MOST_ATTEMPTS]
    runs = runs_of({row.pk: row.adapter for row in rows}, consoles=logs)
    return tuple(_row(row, runs.get(row.pk), logs=logs) for row in reversed(rows))


def unclaimed_rows(host: Q) -> tuple[AttemptRow, ...]:
    """Of the latest attempts on a host those that failed before its agent came, with the words of their consoles.

    For people of the lab: the host is to be mended, whatever the work was. At most three queries.
    """
    latest = Attempt.objects.filter(host).order_by(LATEST_FIRST).values_list("pk", flat=True)[:_LATEST]
    rows = attempt_rows(Q(pk__in=list(latest)) & ~Q(fault=""), logs=True)
    return tuple(row for row in rows if row.run is not None and row.run.console)


def _row(row: Attempt, run: Run | None, *, logs: bool) -> AttemptRow:
    host = row.builder or row.machine or (row.power_cycle.machine if row.power_cycle else None)
    return AttemptRow(
        id=row.pk,
        key=row.key,
        adapter=row.adapter,
        where=host.name if host else "",
        told_by=row.host,
        agent=row.agent,
        state=row.state,
        state_label=Attempt.State(row.state).label,
        state_since=row.state_since,
        losing=row.losing,
        reason=row.reason,
        progress=row.progress,
        log=row.log if logs else "",
        created_at=row.created_at,
        arrived_at=row.arrived_at,
        lease_until=row.lease_until,
        deadline_at=row.deadline_at,
        active=row.state in Attempt.ACTIVE,
        run=run,
        posts=row.posts or 0,
        fault=row.get_fault_display() if row.fault else "",
    )


# These change often and say little one by one: a page may fold them.
_MINOR = frozenset({"boot", "attempt"})
# A page draws the last of them.
_MOST_LINES = 2000
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class HistoryLine:
    step: ProgressStep
    reason: str
    minor: bool
    session_id: int | None


@dataclass(frozen=True, slots=True)
class History:
    """`unshown` counts the steps before those in `lines`."""

    lines: tuple[HistoryLine, ...]
    minor: int
    unshown: int


def history(steps: Sequence[ProgressStep], *, fold: bool) -> History:
    """With `fold` the lines of boots and attempts are minor ones."""
    lines = tuple(
        HistoryLine(
            step=step,
            reason=step.reason[:_LONGEST_REASON],
            minor=fold and step.subject in _MINOR,
            session_id=step.subject_id if step.subject == "session" else None,
        )
        for step in steps[-_MOST_LINES:]
    )
    return History(lines, minor=sum(line.minor for line in lines), unshown=len(steps) - len(lines))


_SERIES = 10


@dataclass(frozen=True, slots=True)
class Blamed:
    """One series that needs this kernel as its base or as patched; `sentence` is empty while nothing is wrong."""

    id: int
    subject: str
    mark: str
    arm: str
    sentence: str


def blamed_in(build: Build) -> tuple[Blamed, ...]:
    """The newest series whose base or head has the source of this build; two queries."""
    # Two questions, each by an index: one with OR over both would read every series.
    based = Series.objects.filter(base__tree_sha=build.tree_sha).order_by().values("pk")
    ending = Series.objects.filter(head__tree_sha=build.tree_sha).order_by().values("pk")
    named = Series.objects.filter(pk__in=based.union(ending)).select_related("base", "head").defer("trailers")
    series = list(named.order_by("-id")[:_SERIES])
    others = _other_arms(build, series)
    return tuple(_blamed(build, row, others) for row in series)


def _other_arms(build: Build, series: list[Series]) -> dict[str, Build]:
    """The builds of the same recipe for the other kernels of these series, by source tree hash."""
    trees = {revision.tree_sha for row in series for revision in (row.base, row.head) if revision}
    same = Build.objects.filter(config=build.config_id, toolchain=build.toolchain_id, arch=build.arch)
    same = same.defer("log_tail", "first_error")
    return {row.tree_sha: row for row in same.filter(tree_sha__in=trees, recipe=build.recipe)} | {build.tree_sha: build}


def _blamed(build: Build, series: Series, builds: dict[str, Build]) -> Blamed:
    assert series.base is not None
    assert series.head is not None
    identical = series.base.tree_sha == series.head.tree_sha
    arm = "base" if build.tree_sha == series.base.tree_sha else "patched"
    base, patched = builds.get(series.base.tree_sha), builds.get(series.head.tree_sha)
    return Blamed(
        id=series.pk,
        subject=series.subject,
        mark=series.mark,
        arm="base = patched" if identical else arm,
        sentence=blame(base, patched).sentence if base and patched else "",
    )


def blame_sentences(series: Series, builds: Sequence[Build]) -> tuple[str, ...]:
    """For each recipe with a kernel that does not build: who is to blame. `builds` are those of the series."""
    if series.base is None or series.head is None:
        return ()
    by_recipe: dict[tuple[object, ...], dict[str, Build]] = {}
    for row in builds:
        recipe = (row.config_id, row.toolchain_id, row.arch, row.recipe)
        by_recipe.setdefault(recipe, {})[row.tree_sha] = row
    pairs = ((found.get(series.base.tree_sha), found.get(series.head.tree_sha)) for found in by_recipe.values())
    told = (blame_of_series(base, patched, series.pk).sentence for base, patched in pairs if base and patched)
    return tuple(dict.fromkeys(sentence for sentence in told if sentence))
