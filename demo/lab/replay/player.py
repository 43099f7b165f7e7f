"""Playing until nothing moves: nights without work, and series."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.lab.replay.agents import Agent, BuilderAgent, MachineAgent
from demo.lab.replay.machines import Truth
from demo.lab.replay.series import base_of, enlist, held_by, post_series
from demo.lab.replay.service import SWEEPS, BrokenError, InProcess, OurDispatcher, Worker, service
from demo.lab.replay.studies import Study
from server.core.models import ApiToken
from server.detection.models import Finding
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
def playing(studies: Iterable[Study], *, seed: int, state: Path | None = None) -> Iterator[Player]:
    """A player on the database that Django is set up on, with its files in `state` or in a folder that goes with it."""
    with service(state) as (worker, port):
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
