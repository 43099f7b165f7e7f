"""Change points of a fleet: what one timeline only suspects, its sisters on other machines confirm or explain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

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
    on its own. Distances are counted in revisions that anybody measured (`nominate` sees their ranks): it does not
    matter whether every commit is measured or every hundredth. Raises ValueError where two timelines of machines have
    one name: events are booked by it.
    """
    names = [t.name for t in timelines if t.machine]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"timeline {twice}: the name is there twice")
    measured = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(t.revisions for t in timelines)]))
    resolution = Resolution([replace(t, revisions=np.searchsorted(measured, t.revisions)) for t in timelines], nominate)
    resolution.run()
    steps = [
        [replace(own[index], revision=int(measured[own[index].revision])) for index in sorted(own)]
        for own in resolution.steps
    ]
    events = [replace(event, revision=int(measured[event.revision])) for event in resolution.events]
    return Fleet(steps=steps, events=sorted(events, key=lambda e: (e.revision, e.machine)))
