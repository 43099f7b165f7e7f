"""The dispatcher of the replay: nothing is started, agents work when the replay lets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from server.lab.dispatch.base import HostSighting, Look, Observed, Sighting, Work


@dataclass
class OurDispatcher:
    """What was submitted waits in `waiting` until the replay lets its agent do it. Named as the one it replaces."""

    name: str = "local"
    waiting: dict[str, Work] = field(default_factory=dict)

    def submit(self, work: Work) -> None:
        self.waiting.setdefault(work.key, work)

    def look(self, works: Sequence[Work]) -> Look:
        known = {key: Sighting(Observed.ALIVE) for key in self.waiting}
        ended = Sighting(Observed.ENDED)
        return Look(
            works={work.key: known.get(work.key, ended) for work in works},
            hosts={work.host: HostSighting(connected=True) for work in works},
        )

    def cancel(self, work: Work) -> bool:
        self.waiting.pop(work.key, None)
        return True

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        return frozenset(hosts)
