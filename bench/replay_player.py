"""Playing: agents do what the service gives them, and its tasks run, until nothing moves any more."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bench.replay_builder import BuilderAgent
from bench.replay_calls import Agent
from bench.replay_commits import held_by
from bench.replay_dispatcher import OurDispatcher
from bench.replay_fleet import enlist
from bench.replay_inprocess import InProcess
from bench.replay_machine import MachineAgent
from bench.replay_rows import Study
from bench.replay_samples import Truth
from bench.replay_series import post_series
from bench.replay_service import service
from bench.replay_worker import SWEEPS, BrokenError, Worker
from server.core.models import ApiToken
from server.detection.models import Finding
from server.lab.dispatch.base import Work
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
