"""Change points of a fleet: what one timeline only suspects, its sisters on other machines confirm or explain."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.stats import changepoints
from server.stats.events import MachineEvent
from server.stats.resolution import Nominate, Resolution
from server.stats.steps import Step
from server.stats.timelines import Timeline


@dataclass(frozen=True)
class Fleet:
    """`steps` are the code steps of each timeline in order of index, aligned with those given; `events` are those of
    machines, in order of revision.
    """

    steps: list[list[Step]]
    events: list[MachineEvent]


def resolve(timelines: Sequence[Timeline], *, nominate: Nominate = changepoints.nominate) -> Fleet:
    """Tell steps of the code from events of machines, on all timelines that share their revisions.

    Timelines of one machine, and of one benchmark, belong together by those names; a timeline without them is judged
    on its own. Raises ValueError where two timelines of machines have one name: events are booked by it.
    """
    names = [t.name for t in timelines if t.machine]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"timeline {twice}: the name is there twice")
    resolution = Resolution(timelines, nominate)
    resolution.run()
    steps = [[own[index] for index in sorted(own)] for own in resolution.steps]
    return Fleet(steps=steps, events=sorted(resolution.events, key=lambda e: (e.revision, e.machine)))
