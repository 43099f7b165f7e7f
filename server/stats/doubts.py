"""When what looks like an event of a machine is a change of the code after all: patterns that service does not make."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

from server.stats.causes import Explanation
from server.stats.shifts import Shift

# Shifts of the benchmarks of one machine at the place.
Shifts = Mapping[str, Shift]

# A benchmark counts as visibly moved from this many standard errors.
VISIBLE = 3.0
# Two machines show the same change when they share so much of all that moved visibly on either. Service of a machine
# does not know which benchmarks a commit touches.
SAME = 0.8
# Where all benchmarks of two machines put one commit differs by no more; two services near each other mostly do.
TOGETHER = 1
# A benchmark is demonstrably still when it moved by less than a third of the usual shift, known to a fifth of it.
STILL_EFFECT, STILL_ERROR = 1 / 3, 1 / 5
# Service moves nearly all benchmarks; with more than this share still, it was the code of one microarchitecture.
MOST_STILL = 0.4


def doubted(explanation: Explanation, machines: Mapping[str, Shifts], places: Mapping[str, int]) -> Explanation:
    """The explanation without the events that are rather the code.

    `machines` are the shifts by machine and benchmark, `places` say where (a count of measured revisions) each machine
    with an event would put it.

    An event is the code as well when its machine visibly moves the very benchmarks that the code moved elsewhere, in
    whatever direction (a change may help one microarchitecture and hurt the others), when another machine moves the
    same benchmarks the opposite way at the same revision, or when many of its benchmarks are demonstrably still.
    """
    odds = {machine: one for machine, one in explanation.events.items() if one > 0}
    visible = {machine: _visible(machines.get(machine, {})) for machine in odds}
    split = _opposite(visible, places)
    split |= {
        m for m in odds.keys() - explanation.machines if _alike(visible[m], explanation.benchmarks & machines[m].keys())
    }
    partly = {m for m in odds if visible[m] and _mostly_still(machines[m], visible[m])}
    events = {m: -abs(one) if m in split | partly else one for m, one in explanation.events.items()}
    moved = {benchmark for m in split for benchmark in visible[m]}
    return replace(
        explanation,
        events=events,
        machines=explanation.machines | split,
        benchmarks=explanation.benchmarks | moved,
    )


def _visible(shifts: Shifts) -> dict[str, float]:
    return {benchmark: shift.effect for benchmark, shift in shifts.items() if abs(shift.z) > VISIBLE}


def _alike(moved: Iterable[str], others: Iterable[str]) -> bool:
    one, two = set(moved), set(others)
    return bool(one and two) and len(one & two) >= SAME * len(one | two)


def _opposite(visible: Mapping[str, Mapping[str, float]], places: Mapping[str, int]) -> set[str]:
    """Machines of which another one moved the same benchmarks the other way."""
    found = set()
    for one, two in combinations(visible, 2):
        common = visible[one].keys() & visible[two].keys()
        against = sum((visible[one][b] > 0) != (visible[two][b] > 0) for b in common)
        together = abs(places[one] - places[two]) <= TOGETHER
        if together and _alike(visible[one], visible[two]) and against >= SAME * len(common):
            found |= {one, two}
    return found


def _mostly_still(shifts: Shifts, visible: Mapping[str, float]) -> bool:
    size = statistics.median(abs(effect) for effect in visible.values())
    still = sum(abs(s.effect) < STILL_EFFECT * size and s.error < STILL_ERROR * size for s in shifts.values())
    return still > MOST_STILL * len(shifts)
