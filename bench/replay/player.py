"""Playing until nothing moves: nights without work, a series over and over, a walk, and what must hold after."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO

from django.core.management import CommandError, call_command

from bench.replay.agents import Agent, BuilderAgent, MachineAgent
from bench.replay.cases import WORTH_NOTHING, Study
from bench.replay.machines import Truth
from bench.replay.report import Line, Rate, line
from bench.replay.series import base_of, enlist, held_by, post_series
from bench.replay.service import SWEEPS, BrokenError, InProcess, OurDispatcher, Worker, service
from server.core.models import ApiToken
from server.detection.bisection.walk import ask_for_walk, walk_of
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Machine, Trial
from server.lab.port import Work
from server.lab.trials.question import Ask, want_trial
from server.sources.models import Series

# A question that needs more visits to its machines than this goes on for ever.
_MOST_SWEEPS = 500


class Player:
    """One service with its fleet, in this process. The same seed gives the same samples in the same order of asking."""

    def __init__(self, studies: Iterable[Study], worker: Worker, port: OurDispatcher, *, seed: int) -> None:
        self.truth = Truth(studies)
        self.worker, self.port, self.seed = worker, port, seed
        self._tokens = enlist(self.truth.studies.values())
        self._transports = {name: InProcess(token) for name, token in self._tokens.items()}
        self.worked = 0

    def settle(self) -> None:
        """Let everybody work until a whole round of sweeps finds nothing more to do."""
        for _ in range(_MOST_SWEEPS):
            self._run()
            before = self.worked
            for sweep in SWEEPS:
                self.worker.send(sweep, ())
            self._run()
            if self.worked == before and not self.port.waiting:
                return
        raise BrokenError(f"not at rest after {_MOST_SWEEPS} rounds of sweeps: {', '.join(self.port.waiting)}")

    def _run(self) -> None:
        while self.worker.work() or self.port.waiting:
            for key in list(self.port.waiting):
                # Its agent is at work until it is not: nobody may take it for gone meanwhile.
                self._do(self.port.waiting[key])
                self.port.waiting.pop(key, None)

    def _do(self, work: Work) -> None:
        self.worked += 1
        agent = Agent(self._transports[work.subject], work.subject)
        if work.scope == ApiToken.Scope.BUILDER:
            BuilderAgent(agent, held_by).work(work.key)
            return
        MachineAgent(agent, work.subject.removesuffix("-1"), self.truth, self.seed).work(work.key)

    def post(self, name: str, number: int) -> Series:
        return post_series(self.truth.studies[name], number)

    def play(self, name: str, number: int = 1) -> Finding | None:
        """Post the series of a study and let the service come to its end with it."""
        series = self.post(name, number)
        self.settle()
        return Finding.objects.filter(series=series).first()


@contextmanager
def playing(studies: Iterable[Study], *, seed: int) -> Iterator[Player]:
    """A player on the database that Django is set up on."""
    with service() as (worker, port):
        yield Player(studies, worker, port, seed=seed)


_BOOTS = 4


def measure_noise(player: Player, trials: int) -> None:
    """So many A/A trials of each benchmark on each physical machine, as nights without work would bring them."""
    done: set[tuple[str, ...]] = set()
    for study in player.truth.studies.values():
        base = base_of(study)
        for machine in Machine.objects.filter(uarch__name__in=study.uarchs, virtual=False):
            cells = (machine.name, *study.benchmarks)
            for number in range(0 if cells in done else trials):
                want_trial(
                    Ask(
                        key=f"noise:{machine.name}:{study.name}:{number}",
                        purpose=Trial.Purpose.NOISE,
                        base=base,
                        patched=base,
                        looks=(_BOOTS,),
                        trace=base.sha[:16],
                        machines=(machine,),
                        benchmarks=tuple(study.benchmarks),
                    )
                )
            done.add(cells)
    player.settle()


_CHANGES = ("regressed", "improved")
MOST_FALSE, LEAST_SPLIT = 0.05, 0.97


def false_alarms(player: Player, name: str, tries: int, *, progress: Callable[[str], None]) -> Rate:
    """Series without any effect: those that end with a cell that regressed or improved."""

    def is_hit(series: Series, _finding: Finding | None) -> bool:
        return Comparison.objects.filter(session__series=series, verdict__in=_CHANGES).exists()

    hits, kinds, seconds = _play(player, name, tries, is_hit, progress)
    what, wanted = "no effect anywhere: families with a changed cell", f"<= {MOST_FALSE:.0%}"
    return Rate(what, hits, tries, hits <= MOST_FALSE * tries, wanted, seconds, kinds)


def splits(player: Player, name: str, tries: int, *, progress: Callable[[str], None]) -> Rate:
    """Series with the published effect: those that end as a split."""

    def is_hit(_series: Series, finding: Finding | None) -> bool:
        return finding is not None and finding.kind == Finding.Kind.SPLIT

    hits, kinds, seconds = _play(player, name, tries, is_hit, progress)
    what, wanted = "published effect: findings that are split", f">= {LEAST_SPLIT:.0%}"
    return Rate(what, hits, tries, hits >= LEAST_SPLIT * tries, wanted, seconds, kinds)


def _play(
    player: Player,
    name: str,
    tries: int,
    is_hit: Callable[[Series, Finding | None], bool],
    progress: Callable[[str], None],
) -> tuple[int, Counter[str], float]:
    began, hits, kinds = time.monotonic(), 0, Counter[str]()
    for number in range(1, tries + 1):
        finding = player.play(name, number)
        series = Series.objects.filter(mailing_list__name=name).latest("pk")
        hits += is_hit(series, finding)
        kinds[f"{finding.kind}, {finding.state}" if finding else "no finding"] += 1
        progress(f"{name}: {number} of {tries}, {hits} hits, {(time.monotonic() - began) / number:.1f} s each")
    return hits, kinds, time.monotonic() - began


NAME = "anon-large-folios"
_BEYOND = 0.02


def walked(player: Player) -> Iterable[Line]:
    """Play the series, ask for its walk, and look at what is said of each patch."""
    finding = player.play(NAME)
    yield Line("anon folios", "split or improved", finding.kind if finding else "no finding", finding is not None)
    if finding is None or finding.series is None:
        return
    ask_for_walk(finding.series, actor="replay")
    player.settle()
    walk = walk_of(finding.series)
    sentences = {row.subject: row.sentence for row in walk.rows} if walk else {}
    study = player.truth.studies[NAME]
    for index, patch in enumerate(study.patches, start=1):
        rows = Comparison.objects.filter(session__trial__key=f"series:{finding.series.pk}:patch:{index}")
        moved = sorted(set(rows.exclude(verdict=Verdict.UNCHANGED).values_list("verdict", flat=True)))
        told = next((text for subject, text in sentences.items() if subject == patch), "no sentence")
        if patch in WORTH_NOTHING:
            right = not moved and rows.exists() and "adds nothing" in told
            yield Line(f"  patch {patch}", "adds nothing", told, right)
        else:
            largest = max(abs(row.steps[index - 1] - 1) for row in study.rows)
            changes = {Verdict.IMPROVED, Verdict.REGRESSED} & set(moved)
            yield Line(f"  patch {patch}", f"moves something ({largest:.0%})", told, bool(changes) or largest < _BEYOND)
    trials = Trial.objects.filter(series=finding.series, purpose=Trial.Purpose.PATCH)
    yield line("  trials of single patches", str(len(study.patches)), str(trials.count()))
    yield line("  findings", "1", str(Finding.objects.filter(series=finding.series).count()))


_MOST_DIFFERENCES = 4000


def failures(player: Player) -> Line:
    """Tasks that ended with an error: a worker lives on, and a sweep asks again, but none of them should."""
    found = player.worker.failures
    for text, count in found.most_common():
        print(f"FAIL: {count} x {text}")
    if found:
        print(player.worker.last_failure)
    return Line("tasks that failed", "0", str(found.total()), not found)


def recomputed() -> Line:
    """Whether everything follows once more from the stored samples."""
    output = StringIO()
    try:
        call_command("recompute", check=True, stdout=output)
    except CommandError as error:
        print(output.getvalue()[:_MOST_DIFFERENCES])
        return Line("computed again from stored samples", "no difference", str(error), right=False)
    return Line("computed again from stored samples", "no difference", output.getvalue().splitlines()[-1], right=True)
