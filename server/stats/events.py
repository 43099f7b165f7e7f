"""Steps of a machine, not of the code: maintenance, microcode, firmware move most of a machine's timelines at once."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from server.stats.noise import median
from server.stats.shifts import Shift, Trace, shift_at
from server.stats.timelines import Timeline
from server.stats.votes import vote

# A timeline counts as visibly moved from this many standard errors.
VISIBLE = 3.0
# A shift so many times the event's size (and its error) is something else as well, and is left to the code.
ODD_ONE_OUT = 3.0
# Logarithms of floating-point numbers end near here.
LARGEST_LOG = 700.0
LARGEST_NUMBER = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class MachineEvent:
    """A step of a machine at a revision.

    `log_odds` against a change of the code, `moved` of `measured` timelines moved visibly; `shifts` are the log ratios
    after/before that were booked to the event, by the timeline's name (where values have no logarithm, the differences
    in units of the usual value).
    """

    machine: str
    revision: int
    log_odds: float
    moved: int
    measured: int
    shifts: Mapping[str, float]


def book(
    machine: str, log_odds: float, members: Sequence[Trace], revision: int, changed: Mapping[str, float] | None = None
) -> MachineEvent:
    """The event of a machine near a revision; `members` are all its timelines that were measured there.

    `changed` are the log ratios by which the code moved benchmarks of other machines at the same place: a timeline
    that rather does what the code did is left to the code.
    """
    revision = vote(members, revision)
    here = [(t, shift_at(t, revision)) for t in members]
    visible = [abs(shift.effect) for _, shift in here if abs(shift.z) > VISIBLE]
    size = statistics.median(visible or [abs(shift.effect) for _, shift in here])
    return MachineEvent(
        machine=machine,
        revision=revision,
        log_odds=log_odds,
        moved=len(visible),
        measured=len(here),
        shifts={
            t.timeline.name: shift.effect
            for t, shift in here
            if abs(shift.effect) <= ODD_ONE_OUT * (size + shift.error)
            and not _like_the_code(shift, size, (changed or {}).get(t.timeline.benchmark))
        },
    )


def _like_the_code(shift: Shift, size: float, code: float | None) -> bool:
    return code is not None and abs(shift.z) > VISIBLE and abs(shift.effect - code) < abs(abs(shift.effect) - size)


def without(timeline: Timeline, revision: int, shift: float) -> Timeline:
    """The timeline as if the level had not moved by the shift at the revision."""
    values = timeline.values
    after = (timeline.revisions >= revision) & np.isfinite(values)
    finite = values[np.isfinite(values)]
    if finite.size and float(finite.min()) > 0:
        levelled = np.exp(np.clip(np.log(np.where(after, values, 1.0)) - shift, -LARGEST_LOG, LARGEST_LOG))
    else:
        sizes = np.abs(finite[finite != 0])
        with np.errstate(over="ignore"):
            levelled = values - shift * (median(sizes) if sizes.size else 1.0)
        levelled = np.clip(levelled, -LARGEST_NUMBER, LARGEST_NUMBER)
    return replace(timeline, values=np.where(after, levelled, values))
