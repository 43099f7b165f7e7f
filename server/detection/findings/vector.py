"""From cells, as they are heard after checks, to one verdict for each microarchitecture, the kind of the finding and
its one line. No database in here.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, Self

from server.core.reasons import Because
from server.core.rounding import seen_effect, size_of
from server.detection.findings.checks import CheckOutcome, Name
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.detection.models.finding import CHANGES
from server.lab.models import Microarchitecture
from server.results.models import Metric
from server.stats.levels import FALSE_DISCOVERY_RATE, is_crowd

SPLIT = "split"
SAME_CODE = "same code"
_MOST_NAMES = 5


# Other checks are told beside the claim and take nothing of it away.
_SILENCING = (Name.MACHINE, Name.LAYOUT, Name.AGAIN)


def heard(comparisons: Sequence[Comparison], checks: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """The same rows; unsaved copies that are inconclusive stand for those that a failed check silences.

    A failed check of these names with `comparisons` silences these (by id), one without all of its `machine`.
    What is stored stays: it is what was measured.
    """
    return [_quiet(row, why) if (why := _why(row, checks)) else row for row in comparisons]


def silenced(comparisons: Sequence[Comparison], checks: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """By microarchitecture (id), why some of its comparisons are not heard."""
    found: dict[int, dict[str, None]] = {}
    for row in comparisons:
        if why := _why(row, checks):
            found.setdefault(row.session.machine.uarch_id, {})[why] = None
    return {uarch: "; ".join(reasons) for uarch, reasons in found.items()}


def _why(row: Comparison, checks: Sequence[Mapping[str, Any]]) -> str:
    return next(_reasons(row, checks), "")


def _reasons(row: Comparison, checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for check in checks:
        if check.get("outcome") != CheckOutcome.FAILED or check.get("name") not in _SILENCING:
            continue
        single = check.get("comparisons")
        of_it = row.pk in single if single else check.get("machine") == row.session.machine.name
        if of_it:
            yield str(check.get("text", ""))


def _quiet(row: Comparison, why: str) -> Comparison:
    other = copy(row)
    other.verdict, other.reason, other.reason_code = Verdict.INCONCLUSIVE, why, Because.CHECK_FAILED
    return other


@dataclass(frozen=True)
class Gap:
    """Something that was wanted and has no result."""

    machine: str
    uarch: str
    reason: str

    def __str__(self) -> str:
        return f"{self.machine}: {self.reason}"


@dataclass(frozen=True)
class CellVerdict:
    """One (case, metric, core type) of a microarchitecture over all its machines.

    `sizes` says what they measured, where they agree that it changed and not by how much. Of one that could not be
    told, `leans`: its interval leaves out "no change"; `differs`: so surely that chance among all cells does not do it.
    """

    name: str
    verdict: str
    speaker: Comparison
    question: str = ""
    silent: tuple[str, ...] = ()
    sizes: str = ""
    leans: bool = False
    differs: bool = False
    silenced: bool = False

    @property
    def told(self) -> bool:
        return self.verdict != Verdict.INCONCLUSIVE


# What sees no smaller change than this misses most.
_LARGE = 0.1


@dataclass(frozen=True)
class Coverage:
    """In how many cells something could be told, and how small a change.

    `mde`: of the unchanged ones, the largest of the changes that each would have seen; `mde_half`: what half of them
    would. `missed`: the largest change that the others may hide; it knows nothing of those that are `blind`, without
    any figure.
    """

    told: int = 0
    untold: int = 0
    mde: float | None = None
    mde_half: float | None = None
    blind: int = 0
    missed: float | None = None

    @classmethod
    def of(cls, row: FindingVerdict) -> Self:
        """As it was stored."""
        return cls(row.told, row.untold, row.mde, row.mde_half, row.blind, row.missed)

    @property
    def brief(self) -> str:
        """What was told alone, as in `28 of 50 cells within 2.0 %`."""
        if not self.untold:
            return str(self)
        total = self.told + self.untold
        return f"{self.told} of {total} {'cell' if total == 1 else 'cells'}{self._within()}"

    def _within(self) -> str:
        if self.mde is None:
            return ""
        if self._is_uneven:
            return f", half of them within {seen_effect(self.mde_half or 0)}, all within {seen_effect(self.mde)}"
        return f" within {seen_effect(self.mde)}"

    @property
    def _is_uneven(self) -> bool:
        """A few noisy cells must not speak for all others, nor be left out."""
        return self.mde is not None and self.mde_half is not None and self.mde > max(_LARGE, 2 * self.mde_half)

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(
            self.told + other.told,
            self.untold + other.untold,
            _larger(self.mde, other.mde),
            # At least half of each are at least half of all.
            _larger(self.mde_half, other.mde_half),
            self.blind + other.blind,
            _larger(self.missed, other.missed),
        )

    def __str__(self) -> str:
        if not self.untold:
            return self._would_have_seen()
        if not self.told:
            cells = "its cell" if self.untold == 1 else f"all {self.untold} cells"
            return f"{cells} could not be told{self._below()}"
        return f"{self.brief}; {self.untold} could not be told{self._below()}"

    def _would_have_seen(self) -> str:
        if self.mde is None:
            return ""
        if self._is_uneven:
            half = seen_effect(self.mde_half or 0)
            return f"would have seen {half} in half of the cells, {seen_effect(self.mde)} in all"
        return f"would have seen {seen_effect(self.mde)}"

    def _below(self) -> str:
        if self.missed is None:
            return ""
        return f" below {seen_effect(self.missed)}" + (f", {self.blind} of them not at all" if self.blind else "")


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


@dataclass(frozen=True)
class UarchVerdict:
    """One component of the vector. `moved` holds the cell that moved most; of a split, one for each direction.

    `differing` may have changed, and `leaning` does no more than chance may: of both the largest first. `unbooted`:
    both kernels run the same code there. `broken`: not measured, because of one of the kernels.
    """

    uarch: Microarchitecture
    verdict: str
    reason: str = ""
    hint: str = ""
    moved: tuple[CellVerdict, ...] = ()
    coverage: Coverage = Coverage()
    differing: tuple[CellVerdict, ...] = ()
    leaning: tuple[CellVerdict, ...] = ()
    measured: bool = True
    unbooted: bool = False
    broken: bool = False


def uarch_verdicts(
    uarchs: Iterable[Microarchitecture],
    comparisons: Sequence[Comparison],
    gaps: Sequence[Gap],
    *,
    same_code: Collection[int] = (),
    silenced: Mapping[int, str] | None = None,
    broken: Collection[int] = (),
) -> list[UarchVerdict]:
    """The vector: every microarchitecture that was wanted, sorted by name.

    `same_code` are the ids of those for which both kernels run the same code. Where nothing else was measured there,
    nothing changed. `silenced` says by their ids why comparisons of some are given as inconclusive; on those that are
    `broken` a kernel cannot be built or does not run.
    """
    silenced = silenced or {}
    by_uarch: dict[int, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        by_uarch[comparison.session.machine.uarch_id].append(comparison)
    vector = []
    for uarch in sorted(set(uarchs), key=lambda uarch: uarch.name):
        found = by_uarch.get(uarch.pk, [])
        if found:
            vector.append(_told(_judge(uarch, _cells(found)), silenced.get(uarch.pk, "")))
        elif uarch.pk in same_code:
            vector.append(UarchVerdict(uarch, Verdict.UNCHANGED, SAME_CODE, unbooted=True))
        else:
            missing = "; ".join(str(gap) for gap in gaps if gap.uarch == uarch.name) or "no measurements"
            vector.append(
                UarchVerdict(
                    uarch,
                    Verdict.INCONCLUSIVE,
                    f"not measured: {missing}",
                    hint=missing,
                    measured=False,
                    broken=uarch.pk in broken,
                )
            )
    return vector


def _told(judged: UarchVerdict, silenced: str) -> UarchVerdict:
    """The component with the reason why what was measured there is not heard; it goes on naming the cell."""
    if not silenced:
        return judged
    reason = f"{silenced}; {judged.reason}" if judged.reason else silenced
    return replace(judged, reason=reason, hint=silenced)


def kind_of(vector: Sequence[UarchVerdict]) -> Finding.Kind:
    """The class of the whole vector; it is never a mean over machines."""
    verdicts = {component.verdict for component in vector}
    if SPLIT in verdicts or verdicts.issuperset(CHANGES):
        return Finding.Kind.SPLIT
    for kind in CHANGES:
        if kind in verdicts:
            return Finding.Kind(kind.value)
    return Finding.Kind.UNCHANGED if _is_all_clear(vector) else Finding.Kind.INCONCLUSIVE


def _is_all_clear(vector: Sequence[UarchVerdict]) -> bool:
    """What the lab could not measure leaves a gap, which the headline names; what does not run is no good news.

    Where something was missing, the same code elsewhere clears nothing: it was not measured either.
    """
    measured = [component for component in vector if component.measured]
    if any(component.verdict != Verdict.UNCHANGED for component in measured):
        return False
    missing = [component for component in vector if not component.measured]
    if any(component.broken for component in missing):
        return False
    return any(not component.unbooted for component in measured) or (bool(measured) and not missing)


def shorten(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def _cells(comparisons: Sequence[Comparison]) -> list[CellVerdict]:
    core_types: dict[int, set[str]] = defaultdict(set)
    by_cell: dict[tuple[int, int, str], list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        core_types[comparison.session_id].add(comparison.core_type.name)
        by_cell[comparison.case_id, comparison.metric_id, comparison.core_type.name].append(comparison)
    mixed = any(len(names) > 1 for names in core_types.values())
    return [_cell(found, mixed=mixed) for found in by_cell.values()]


def _cell(comparisons: Sequence[Comparison], *, mixed: bool) -> CellVerdict:
    """Machines of one microarchitecture must not contradict each other; one that cannot tell does not."""
    first = comparisons[0]
    name = f"{first.metric.name} of {first.case.name}" + (f" on {first.core_type.name} cores" if mixed else "")
    telling = [comparison for comparison in comparisons if comparison.verdict != Verdict.INCONCLUSIVE]
    if len({comparison.verdict for comparison in telling}) > 1:
        said = ", ".join(f"{comparison.verdict} on {comparison.session.machine.name}" for comparison in telling)
        return CellVerdict(name, Verdict.INCONCLUSIVE, min(telling, key=_width), question=f"{name} is {said}")
    if not telling:
        return _untold(name, comparisons)
    silent = tuple(c.session.machine.name for c in comparisons if c.verdict == Verdict.INCONCLUSIVE)
    sizes = ""
    if telling[0].verdict in CHANGES and not _overlap(telling):
        sizes = f"{name} is " + ", ".join(f"{_shown(c)} on {c.session.machine.name}" for c in telling)
    return CellVerdict(name, telling[0].verdict, speaker_of(telling), silent=silent, sizes=sizes)


def speaker_of(comparisons: Sequence[Comparison]) -> Comparison:
    """Of machines that say the same the most precise; where intervals of a change leave each other out the one that saw
    the smallest: that much all of them saw.
    """
    if all(row.verdict in CHANGES for row in comparisons) and not _overlap(comparisons):
        return min(comparisons, key=_log_ratio)
    return min(comparisons, key=_width)


def _untold(name: str, comparisons: Sequence[Comparison]) -> CellVerdict:
    """Of several machines one that leans speaks."""
    leaning = [row for row in comparisons if _leans(row)]
    adjusted = [row.p_adjusted for row in comparisons if row.p_adjusted is not None]
    return CellVerdict(
        name,
        Verdict.INCONCLUSIVE,
        min(leaning or comparisons, key=_width),
        leans=bool(leaning),
        differs=min(adjusted, default=1.0) <= FALSE_DISCOVERY_RATE,
        silenced=all(row.reason_code == Because.CHECK_FAILED for row in comparisons),
    )


def _leans(row: Comparison) -> bool:
    low, high = row.ratio_low, row.ratio_high
    return low is not None and high is not None and (low > 1 or high < 1)


def _overlap(comparisons: Sequence[Comparison]) -> bool:
    """Whether some ratio lies in all their intervals, or nearer than the smallest effect that counts."""
    lows, highs = ([getattr(c, end) for c in comparisons] for end in ("ratio_low", "ratio_high"))
    near = 1 + max(c.min_effect for c in comparisons)
    return None in {*lows, *highs} or max(lows) <= min(highs) * near


def _judge(uarch: Microarchitecture, cells: Sequence[CellVerdict]) -> UarchVerdict:
    coverage = _coverage(cells)
    verdict = _verdict(cells, coverage)
    differing = _may_have_changed(cells)
    leaning = sorted((cell for cell in cells if cell.leans and cell not in differing), key=movement, reverse=True)
    return UarchVerdict(
        uarch,
        verdict,
        reason="; ".join(_reasons_told(cells, differing, leaning)),
        hint="its machines disagree" if any(cell.question for cell in cells) else "",
        moved=_moved_most(verdict, cells),
        coverage=coverage,
        differing=tuple(differing),
        leaning=tuple(leaning),
    )


def _reasons_told(
    cells: Sequence[CellVerdict], differing: Sequence[CellVerdict], leaning: Sequence[CellVerdict]
) -> Iterator[str]:
    if questions := [cell.question for cell in cells if cell.question]:
        yield f"machine question: {'; '.join(questions)}"
    if differing:
        yield f"may have changed: {shorten([_speed(cell) for cell in differing])}"
    if leaning:
        yield f"leans, as chance may: {shorten([_speed(cell) for cell in leaning])}"
    if untold := [cell.name for cell in cells if not (cell.told or cell.question)]:
        yield f"could not be told: {shorten(untold)}"
    if sizes := [cell.sizes for cell in cells if cell.sizes]:
        yield f"its machines agree on the change and not on its size: {shorten(sizes)}"
    yield from _silence(cells)


def _coverage(cells: Sequence[CellVerdict]) -> Coverage:
    untold = [cell for cell in cells if not cell.told]
    reach = [_reach(cell.speaker) for cell in untold]
    known = [size for size in reach if size is not None]
    every = (cell.speaker.mde for cell in cells if cell.verdict == Verdict.UNCHANGED)
    calm = [mde for mde in every if mde is not None]
    return Coverage(
        told=len(cells) - len(untold),
        untold=len(untold),
        mde=max(calm, default=None),
        mde_half=median_low(calm) if calm else None,
        blind=len(reach) - len(known),
        missed=max(known, default=None),
    )


def _reach(row: Comparison) -> float | None:
    """The largest change that its boots do not rule out, or would have left open too often."""
    low, high = row.ratio_low, row.ratio_high
    if not low or not high or row.mde is None:
        return None
    return max(row.mde, high - 1, 1 / low - 1)


def _may_have_changed(cells: Sequence[CellVerdict]) -> list[CellVerdict]:
    """Of which a change must be told of, though not how large it is: one by one, or because so many of them lean."""
    leaning = [cell for cell in cells if cell.leans]
    crowd = is_crowd(len(leaning), sum(not cell.told for cell in cells))
    found = [cell for cell in cells if cell.differs or (crowd and cell.leans)]
    return sorted(found, key=movement, reverse=True)


# So many of its cells at least must be told: fewer speak for a part of what was asked.
_TOLD_ENOUGH = 0.5


def _verdict(cells: Sequence[CellVerdict], coverage: Coverage) -> str:
    """A cell in question is left out: it hides no change of another cell, but nothing is `unchanged` beside it.

    Nor is it beside one that differs, or that a check silenced. One that noise hides only stays untold.
    """
    verdicts = {cell.verdict for cell in cells}
    if verdicts.issuperset(CHANGES):
        return SPLIT
    for change in CHANGES:
        if change in verdicts:
            return change
    if any(cell.question or cell.silenced for cell in cells) or _may_have_changed(cells):
        return Verdict.INCONCLUSIVE
    enough = coverage.told >= _TOLD_ENOUGH * len(cells)
    return Verdict.UNCHANGED if enough else Verdict.INCONCLUSIVE


def _silence(cells: Sequence[CellVerdict]) -> list[str]:
    by_machine: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        for machine in cell.silent:
            by_machine[machine].append(cell.name)
    return [f"{machine} alone could not tell: {shorten(names)}" for machine, names in sorted(by_machine.items())]


def _moved_most(verdict: str, cells: Sequence[CellVerdict]) -> tuple[CellVerdict, ...]:
    if verdict == SPLIT:
        return tuple(max((c for c in cells if c.verdict == change), key=movement) for change in CHANGES)
    # An inconclusive verdict is about the cells in question, where there are any, or those that may have changed.
    made = [cell for cell in cells if cell.verdict == verdict]
    made = [cell for cell in made if cell.question] or _may_have_changed(made) or made
    return (max(made, key=movement),)


def movement(cell: CellVerdict) -> float:
    return _log_ratio(cell.speaker)


def _log_ratio(comparison: Comparison) -> float:
    """How far from no change, in either direction; -1 where there is no ratio."""
    return abs(math.log(comparison.ratio)) if comparison.ratio else -1.0


def _shown(comparison: Comparison) -> str:
    return as_speed(comparison.ratio, comparison.metric.better) if comparison.ratio else "changed"


def _width(comparison: Comparison) -> float:
    low, high = comparison.ratio_low, comparison.ratio_high
    return math.log(high) - math.log(low) if low and high else math.inf


# From here on two decimals show enough of a ratio.
_PLAIN_RATIO = 0.1


def as_ratio(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio >= _PLAIN_RATIO else f"{ratio:.2g}x"


def as_speed(ratio: float, better: str) -> str:
    """`1.71x slower`, `41 % slower`: by the metric's direction, so that what is worse never looks like what is better.

    The factor is that of the larger over the smaller; the percentage is how far the metric itself moved.
    """
    if ratio <= 0 or better == Metric.Better.NONE:
        return as_ratio(ratio)
    return f"{size_of(ratio)} {'faster' if (ratio > 1) == (better == Metric.Better.HIGHER) else 'slower'}"


def _speed(cell: CellVerdict) -> str:
    return f"{cell.name} ({_shown(cell.speaker)})"
