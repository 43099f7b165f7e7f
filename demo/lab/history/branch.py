"""The simulated branch from its first head to its last, with the service in one process."""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from demo.lab.history.hosts import Hosts
from demo.lab.history.truth import ARCHS, CASES_EACH, RUNS, UARCHS, WARMUP, Levels, Truth, wanted_places
from server.builds.models import KernelConfig, Toolchain
from server.celery import app
from server.core import clock, tasks
from server.lab.hosts.state import change_health
from server.lab.models import CoreType, Machine, Microarchitecture
from server.results.models import Benchmark, Case, Metric
from server.sources.mirror import mirror, record_revisions, tree_ref
from server.sources.models import Branch, MeasureRule, Revision, Tree, WantedRevision
from workers import builds, detection

BRANCH = "master"
HEAD_EVERY = timedelta(hours=6)


def make_site(truth: Truth, levels: Levels, started_at: datetime) -> tuple[Branch, list[Revision], list[Machine]]:
    """A branch whose head is its first commit, with rows for all of them, and machines that are well."""
    # What the rules that a site begins with ask for is not measured here.
    MeasureRule.objects.all().delete()
    tree = Tree.objects.create(name="fleet", url="file:///nowhere.git", branch_patterns=[BRANCH], uarchs=[*UARCHS])
    revisions = record_revisions(tree=tree, shas=_commits(tree, truth, started_at), foreign=False)
    branch = Branch.objects.create(tree=tree, name=BRANCH, head=revisions[0], head_at=revisions[0].committed_at)
    _benchmarks(truth.benchmarks, levels)
    return branch, revisions, _machines(truth, levels)


def _commits(tree: Tree, truth: Truth, started_at: datetime) -> list[str]:
    """First-parent history, oldest first; each commit changes one file, so that each can be taken back."""
    lines = []
    for place in range(truth.revisions):
        text, at = f"level {place}\n", int((started_at + place * HEAD_EVERY).timestamp())
        message = f"mm: Revision {place}\n"
        lines += [f"commit {tree_ref(tree, BRANCH)}", f"mark :{place + 1}"]
        lines += [f"committer Ada Author <ada@example.org> {at} +0000", f"data {len(message)}", message]
        lines += [f"M 644 inline mm/file-{place}.c", f"data {len(text)}", text]
    mirror().output("fast-import", "--quiet", stdin="\n".join([*lines, ""]).encode())
    return mirror().output("rev-list", "--first-parent", "--reverse", tree_ref(tree, BRANCH)).decode().split()


def _benchmarks(count: int, levels: Levels) -> None:
    for number in range(count):
        row = Benchmark.objects.create(name=f"bench-{number}", title=f"Bench {number}", version="1")
        slower_is_more = bool(levels.slower_is_more[number * CASES_EACH])
        Metric.objects.create(
            benchmark=row,
            name="time" if slower_is_more else "rate",
            title="time" if slower_is_more else "rate",
            unit="ns" if slower_is_more else "ops/s",
            better="lower" if slower_is_more else "higher",
        )
        Case.objects.bulk_create(
            Case(benchmark=row, name=f"case-{case}", title=f"Case {case}", runs=RUNS, warmup=WARMUP)
            for case in range(CASES_EACH)
        )


def _machines(truth: Truth, levels: Levels) -> list[Machine]:
    archs = {name: ARCHS.get(name, "x86_64") for name in UARCHS}
    configs = {
        arch: KernelConfig.objects.create(name=f"lab-{arch}", arch=arch, fragment="")
        for arch in sorted({*archs.values()})
    }
    toolchain = Toolchain.objects.get_or_create(name="gcc", defaults={"compiler": "gcc"})[0]
    cases = [f"bench-{number}/case-{case}" for number in range(truth.benchmarks) for case in range(CASES_EACH)]
    kinds = {name: Microarchitecture.objects.create(name=name, arch=archs[name], title=name) for name in UARCHS}
    machines = [
        Machine.objects.create(
            name=f"{levels.uarch(number)}-{number}",
            uarch=kinds[levels.uarch(number)],
            config=configs[archs[levels.uarch(number)]],
            toolchain=toolchain,
            boot_driver="kexec",
            cases=cases,
        )
        for number in range(truth.machines)
    ]
    CoreType.objects.bulk_create(CoreType(machine=machine, name="all", cpus="0-7") for machine in machines)
    return machines


# Their tasks are known when they are imported.
WORKERS = (builds, detection)
SWEEPS = ("builds.sweep", "detection.sweep")
# What the hosts do themselves, and what nobody here waits for.
_NOT_HERE = ("lab.", "reports.", "sources.", "upkeep.")
# So many rounds of messages without end are a defect, not work.
_MOST_ROUNDS = 400

Task = tuple[str, tuple[int | str, ...]]


class Player:
    """Delivers what was sent until nothing is left to do; `failed` counts the tasks that did, with their errors."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        # Kept in their order; one that is there already is not needed twice.
        self._waiting: dict[Task, None] = {}
        self.failed = Counter[tuple[str, str]]()
        tasks.send = self._send

    def _send(self, name: str, arguments: tuple[int | str, ...]) -> None:
        if not name.startswith(_NOT_HERE):
            self._waiting[name, arguments] = None

    def run(self) -> None:
        """Everything that can be done now. Raises RuntimeError where it does not come to rest."""
        swept = False
        for _ in range(_MOST_ROUNDS):
            self._deliver()
            if self._hosts.build_all() + self._hosts.measure_all():
                swept = False
            elif swept:
                return
            else:
                # What no message woke: the sweeps find it, and are harmless where there is nothing.
                swept = True
                for name in SWEEPS:
                    self._send(name, ())
        raise RuntimeError(f"not at rest after {_MOST_ROUNDS} rounds; {len(self._waiting)} messages wait")

    def _deliver(self) -> None:
        while self._waiting:
            name, arguments = next(iter(self._waiting))
            del self._waiting[name, arguments]
            try:
                app.tasks[name](*arguments)
            except Exception as error:  # noqa: BLE001 (as a worker does: one task that fails ends nothing else)
                if not self.failed[name, repr(error)]:
                    traceback.print_exc()
                self.failed[name, repr(error)] += 1


@contextmanager
def set_time(ahead: timedelta) -> Iterator[Callable[[timedelta], None]]:
    """Yields what moves the service's clock on; between two moves it goes on as the real one does."""
    real = timezone.now

    def now() -> datetime:
        return real() + ahead

    def move(by: timedelta) -> None:
        nonlocal ahead
        ahead += by

    timezone.now = now
    try:
        yield move
    finally:
        timezone.now = real


_SAID_EVERY = 10


@dataclass(frozen=True)
class Played:
    """`places` are those of the branch's commits, `seconds` what each head took with all that followed from it.

    `failed` counts tasks that ended with an error.
    """

    branch: Branch
    places: Mapping[str, int]
    seconds: Sequence[float]
    failed: int


def play(truth: Truth, seed: int, say: Callable[[str], None], *, past: timedelta = timedelta()) -> Played:
    """On the empty database that Django is set up on; replaces where messages are sent to.

    The first head comes so long ago as `past` says, each place HEAD_EVERY later.
    """
    levels = Levels(truth, seed)
    with set_time(-past) as move:
        branch, revisions, machines = make_site(truth, levels, clock.now())
        hosts = Hosts(truth, levels, machines)
        player = Player(hosts)
        begun, seconds = time.monotonic(), list[float]()
        for number, place in enumerate(wanted_places(truth)):
            started = time.monotonic()
            move(HEAD_EVERY * (place - hosts.now))
            hosts.now = place
            _come_and_go(truth, machines, place)
            _new_head(branch, revisions[place])
            player.run()
            seconds.append(time.monotonic() - started)
            if number % _SAID_EVERY == 0:
                say(f"{time.monotonic() - begun:6.0f} s: place {place}, {seconds[-1]:.2f} s")
    return Played(
        branch, {revision.sha: place for place, revision in enumerate(revisions)}, seconds, player.failed.total()
    )


def _new_head(branch: Branch, revision: Revision) -> None:
    branch.head, branch.head_at = revision, clock.now()
    branch.save()
    WantedRevision.objects.create(tree=branch.tree, revision=revision, why="head", branch=branch.name)


def _come_and_go(truth: Truth, machines: Sequence[Machine], place: int) -> None:
    for number, machine in enumerate(machines):
        machine.refresh_from_db()
        away = any(which == number and first <= place <= last for which, first, last in truth.away)
        if away and machine.health == Machine.Health.GOOD:
            change_health(machine, Machine.Health.MAINTENANCE, "its rack is moved", actor="operator")
        elif not away and machine.health == Machine.Health.MAINTENANCE:
            change_health(machine, Machine.Health.GOOD, "back in its rack", actor="operator")
