"""The one line of a finding, made of its vector."""

import textwrap
from collections.abc import Callable, Sequence

from server.detection.findings.vector import (
    SAME_CODE,
    SPLIT,
    CellVerdict,
    Coverage,
    UarchVerdict,
    as_speed,
    movement,
)
from server.detection.models import Verdict

_LONGEST_HINT = 120


def headline(vector: Sequence[UarchVerdict], *, identical: bool) -> str:
    """As in `Regressed on zen3 (1.71x slower in time of mm-basic/copy), no change on zen1 (would have seen 1.0 %).`

    What was not measured stands after a semicolon: names of microarchitectures are parted by commas.
    """
    parts = [
        _part("regressed on", vector, Verdict.REGRESSED, _ratios),
        _part("split on", vector, SPLIT, _ratios),
        _part("improved on", vector, Verdict.IMPROVED, _ratios),
        _unchanged([component for component in vector if component.verdict == Verdict.UNCHANGED]),
        _part(
            "inconclusive on", [component for component in vector if component.measured], Verdict.INCONCLUSIVE, _hint
        ),
    ]
    unmeasured = _part("not measured on", [c for c in vector if not c.measured], Verdict.INCONCLUSIVE, _hint)
    told = "; ".join(part for part in (", ".join(part for part in parts if part), unmeasured) if part)
    line = f"{told[:1].upper()}{told[1:]}."
    if not identical:
        return line
    unbooted = all(component.unbooted for component in vector)
    return f"Both kernels {'run the same code' if unbooted else 'are the same image'}. {line}"


def _part(words: str, vector: Sequence[UarchVerdict], verdict: str, detail: Callable[[UarchVerdict], str]) -> str:
    named = [
        f"{component.uarch.name} ({detail(component)})" if detail(component) else component.uarch.name
        for component in vector
        if component.verdict == verdict
    ]
    if len(named) > 1:
        named[-2:] = [f"{named[-2]} and {named[-1]}"]
    return f"{words} {', '.join(named)}" if named else ""


def _unchanged(vector: Sequence[UarchVerdict]) -> str:
    if not vector:
        return ""
    names = ", ".join(
        f"{component.uarch.name} ({SAME_CODE})" if component.unbooted else component.uarch.name for component in vector
    )
    coverage = sum((component.coverage for component in vector), Coverage())
    said = "; ".join(part for part in (str(coverage), _leaning(vector)) if part)
    return f"no change on {names}" + (f" ({said})" if said else "")


def _leaning(vector: Sequence[UarchVerdict]) -> str:
    """What chance may do among so many cells, and what nobody may hide."""
    leaning = [(cell, component.uarch.name) for component in vector for cell in component.leaning]
    if not leaning:
        return ""
    cell, uarch = max(leaning, key=lambda one: movement(one[0]))
    where = f" on {uarch}" if len(vector) > 1 else ""
    more = f" and {len(leaning) - 1} more" if len(leaning) > 1 else ""
    return f"leaning: {changed_in(cell)}{where}{more}"


def _ratios(component: UarchVerdict) -> str:
    return ", ".join(changed_in(cell) for cell in component.moved)


def _hint(component: UarchVerdict) -> str:
    return textwrap.shorten(component.hint or _open(component), _LONGEST_HINT, placeholder=" ...")


def _open(component: UarchVerdict) -> str:
    if not component.differing:
        return str(component.coverage)
    more = f" and {len(component.differing) - 1} more" if len(component.differing) > 1 else ""
    return f"may have changed: {changed_in(component.differing[0])}{more}; {component.coverage}"


def changed_in(cell: CellVerdict) -> str:
    """As in `1.71x slower in time of mm-basic/copy`."""
    of = cell.speaker
    # Names of metrics have no blanks; a reader of one line knows the case by its benchmark alone.
    metric, _, rest = cell.name.partition(" of ")
    name = f"{metric} of {of.case.benchmark.name}/{rest}"
    return f"{as_speed(of.ratio, of.metric.better)} in {name}" if of.ratio is not None else name
