"""Playing: agents do what the service gives them, and its tasks run, until nothing moves any more."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bench.replay_agents import Agent, BuilderAgent, MachineAgent
from bench.replay_fleet import enlist
from bench.replay_samples import Truth
from bench.replay_series import base_of, held_by, post_series
from bench.replay_service import SWEEPS, BrokenError, InProcess, OurDispatcher, Worker, service
from bench.replay_studies import Study
from server.core.models import ApiToken
from server.detection.models import Finding
from server.lab.dispatch.base import Work
from server.lab.models import Machine, Trial
from server.lab.trials.asking import Ask, want_trial
from server.sources.models import Series

# A question that needs more visits to its machines than this goes on for ever.
_MOST_SWEEPS = 500
_NOISE_BOOTS = 4


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

    def measure_noise(self, trials: int) -> None:
        """So many A/A trials on each physical machine, as nights without work would bring them."""
        for study in self.truth.studies.values():
            base = base_of(study)
            for machine in Machine.objects.filter(uarch__name__in=study.uarchs, virtual=False):
                for number in range(trials):
                    want_trial(
                        Ask(
                            key=f"noise:{machine.name}:{study.name}:{number}",
                            purpose=Trial.Purpose.NOISE,
                            base=base,
                            patched=base,
                            looks=(_NOISE_BOOTS,),
                            trace=base.sha[:16],
                            machines=(machine,),
                            benchmarks=tuple(study.benchmarks),
                        )
                    )
        self.settle()


@contextmanager
def playing(studies: Iterable[Study], *, seed: int) -> Iterator[Player]:
    """A player on the database that Django is set up on."""
    with service() as (worker, port):
        yield Player(studies, worker, port, seed=seed)
