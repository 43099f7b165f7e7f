"""A lab with much to do, written straight into the database that Django is set up on."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from django.conf import settings
from django.db import connection

from bench.table import table
from server.builds.models import Build, KernelConfig, Toolchain
from server.core import clock
from server.lab.models import Attempt, Builder, Machine, Microarchitecture, Session, Trial
from server.lab.scheduling.decision import decide
from server.lab.scheduling.placement import queue_in_order
from server.lab.scheduling.reader import read_snapshot
from server.sources.models import MailingList, Revision, Series, Tree

MACHINES, SESSIONS, BUILDERS, BUILDS = 40, 2000, 8, 200
_TREES, _KINDS = 10, 8
# What is over: it must not be read, and costs time where an index is missing.
_OVER = 20_000
_OF_TODAY = 2000
_HALF_AN_HOUR = timedelta(minutes=30)


def fill(since: datetime) -> None:
    """Trees, machines and builders; sessions and builds that wait since then; and what was done before."""
    settings.DISPATCHER = "jenkins"
    trees = Tree.objects.bulk_create(
        Tree(name=f"tree-{number}", url="file:///none", priority=number % 4) for number in range(_TREES)
    )
    machines = _hosts()
    per_machine = SESSIONS // MACHINES
    waiting = _series(trees, per_machine, since)
    over = _series(trees, _OVER // MACHINES, since - timedelta(days=30), first=10_000)
    builds = _builds(waiting, "built")
    _builds(_series(trees, BUILDS // 2, since, first=50_000), "wanted")
    Session.objects.bulk_create(_sessions(waiting, machines, builds, "planned"), batch_size=1000)
    done = Session.objects.bulk_create(_sessions(over, machines, _builds(over, "built"), "done"), batch_size=1000)
    _attempts(done)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _hosts() -> list[Machine]:
    config = KernelConfig.objects.create(name="lean", arch="x86_64", fragment="")
    toolchain = Toolchain.objects.create(name="gcc", compiler="gcc")
    kinds = Microarchitecture.objects.bulk_create(
        Microarchitecture(name=f"kind-{number}", arch="x86_64", title=f"Kind {number}") for number in range(_KINDS)
    )
    Builder.objects.bulk_create(Builder(name=f"builder-{number}", arches=["x86_64"]) for number in range(BUILDERS))
    return Machine.objects.bulk_create(
        Machine(
            name=f"machine-{number}",
            uarch=kinds[number % _KINDS],
            config=config,
            toolchain=toolchain,
            boot_driver="kexec",
        )
        for number in range(MACHINES)
    )


def _series(trees: list[Tree], number: int, at: datetime, first: int = 0) -> list[Series]:
    """Applied series, each on a base of its own, of the trees in turn."""
    mailing_list = MailingList.objects.get_or_create(name="list", defaults={"url": "", "address": "l@x"})[0]

    def revisions(offset: int) -> Iterator[Revision]:
        for one in range(number):
            sha = f"{2 * (first + one) + offset + 1:040x}"
            tree = trees[one % len(trees)]
            yield Revision(
                sha=sha, tree_sha=sha, tree=tree, subject="", author="", committed_at=at, foreign=bool(offset)
            )

    bases = Revision.objects.bulk_create(revisions(0), batch_size=1000)
    heads = Revision.objects.bulk_create(revisions(1), batch_size=1000)
    return Series.objects.bulk_create(
        (
            Series(
                mailing_list=mailing_list,
                root_message_id=f"{first + one}@x",
                subject="mm: Change",
                author_address="a@x",
                total=1,
                submitted_at=at,
                base=bases[one],
                head=heads[one],
                state="applied",
            )
            for one in range(number)
        ),
        batch_size=1000,
    )


def _builds(series: list[Series], state: str) -> list[tuple[Build, Build]]:
    config, toolchain = KernelConfig.objects.get(), Toolchain.objects.get()

    def build(revision: Revision | None) -> Build:
        assert revision is not None
        build_id = revision.sha if state == "built" else ""
        return Build(
            revision=revision,
            tree_sha=revision.tree_sha,
            config=config,
            toolchain=toolchain,
            arch="x86_64",
            recipe="r",
            state=state,
            state_since=clock.now() - _HALF_AN_HOUR,
            build_id=build_id,
        )

    bases = Build.objects.bulk_create((build(one.base) for one in series), batch_size=1000)
    heads = Build.objects.bulk_create((build(one.head) for one in series), batch_size=1000)
    return list(zip(bases, heads, strict=True))


def _trial(series: Series) -> Trial:
    return Trial(
        key=f"series:{series.pk}",
        purpose=Trial.Purpose.SERIES,
        series=series,
        base=series.base,
        patched=series.head,
        looks=[2],
        state=Trial.State.MEASURING,
    )


def _sessions(
    series: list[Series], machines: list[Machine], builds: list[tuple[Build, Build]], state: str
) -> Iterator[Session]:
    trials = Trial.objects.bulk_create(map(_trial, series), batch_size=1000)
    for number, (one, trial, (base, head)) in enumerate(zip(series, trials, builds, strict=True)):
        for machine in machines:
            yield Session(
                series=one,
                trial=trial,
                machine=machine,
                base_build=base,
                patched_build=head,
                state=state,
                priority=number % 2,
                deadline_at=clock.now() + timedelta(days=number) if number % 7 == 0 else None,
                # Half of them came just now, so that their attempts are counted.
                state_since=clock.now() - (_HALF_AN_HOUR if number % 2 else timedelta()),
            )


def _attempts(sessions: list[Session]) -> None:
    """One attempt at each session that is over; the last ones ended today."""
    today = len(sessions) - _OF_TODAY
    Attempt.objects.bulk_create(
        (
            Attempt(
                key=f"session-{session.pk}-1",
                number=1,
                session=session,
                machine=session.machine,
                adapter="jenkins",
                slots=1,
                agent="a",
                state="done",
                state_since=clock.now() - (timedelta(minutes=number % 600) if number >= today else timedelta(days=9)),
            )
            for number, session in enumerate(sessions)
        ),
        batch_size=1000,
    )
    # The column fills itself when a row is made; fair share reads when an attempt began.
    with connection.cursor() as cursor:
        cursor.execute("UPDATE lab_attempt SET created_at = state_since - interval '30 minutes'")


# What the scheduler's decision costs: 2000 waiting sessions over 40 machines and 200 builds over 8 builders.
#
#     python -m bench.scratch_database bench.dispatch.scheduler
#
# A decision is all of it: reading the snapshot from PostgreSQL and deciding. The database holds a history as well: 20
# 000 sessions that are over, and 2000 attempts within the day that fair share looks back.

MOST_MS = 50.0
ROUNDS = 40


@dataclass(frozen=True)
class Cost:
    """Milliseconds of many rounds: the best, the median and the worst, and the median of this process' CPU time.

    On a host that does other things the first and the last say more than the two between.
    """

    name: str
    best: float
    middle: float
    worst: float
    cpu: float

    @property
    def ratio(self) -> float:
        """Of the bar; what is below 1 holds."""
        return self.middle / MOST_MS


def measure(rounds: int = ROUNDS) -> tuple[Cost, ...]:
    """Fill the database that Django is set up on, and time the decision there: whole, its two halves, and the queue."""
    fill(clock.now() - timedelta(days=2))
    chosen = decide(read_snapshot())
    snapshot = read_snapshot()
    sessions = sum(one.kind == "session" for one in chosen)
    builds = sum(one.kind == "build" for one in chosen)
    if (sessions, builds) != (MACHINES, BUILDERS):
        raise AssertionError(f"{sessions} sessions and {builds} builds were chosen")
    return (
        _time("decision", lambda: decide(read_snapshot()), rounds),
        _time("  reading", read_snapshot, rounds),
        _time("  deciding", lambda: decide(snapshot), rounds),
        _time("whole queue, for its page", lambda: queue_in_order(snapshot), rounds),
    )


def _time(name: str, step: Callable[[], object], rounds: int) -> Cost:
    taken, cpu = [], []
    for _ in range(rounds):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        step()
        taken.append(1000 * (time.perf_counter() - begin))
        cpu.append(1000 * (time.process_time() - begin_cpu))
    return Cost(name, min(taken), median(taken), max(taken), median(cpu))


def told(costs: tuple[Cost, ...]) -> str:
    rows = [
        [cost.name, *(f"{ms:.1f}" for ms in (cost.best, cost.middle, cost.worst, cost.cpu)), f"{cost.ratio:.2f}"]
        for cost in costs
    ]
    title = f"{SESSIONS} sessions over {MACHINES} machines, {BUILDS} builds over {BUILDERS} builders"
    return f"{title}; bar {MOST_MS:g} ms\n" + table(
        ["", "best ms", "median ms", "worst ms", "own CPU ms", "median / bar"], rows
    )


def main() -> None:
    costs = measure()
    print(told(costs))
    sys.exit(0 if costs[0].middle <= MOST_MS else 1)
