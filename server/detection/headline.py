"""One line that names each microarchitecture and what happened on it."""

import textwrap
from collections.abc import Callable, Sequence

from server.detection.models import Verdict
from server.detection.vector import SAME_CODE, SPLIT, CellVerdict, UarchVerdict

_LONGEST_HINT = 120
# From here on two decimals show enough of a ratio, and a percentage needs none.
_PLAIN_RATIO = 0.1
_WHOLE_PERCENT = 10


def headline(vector: Sequence[UarchVerdict], *, identical: bool) -> str:
    """For example: `Regressed on haswell (1.71x time of fault-4k), no change on zen1 (would have seen 1.0 %).`"""
    parts = [
        _part("regressed on", vector, Verdict.REGRESSED, _ratios),
        _part("split on", vector, SPLIT, _ratios),
        _part("improved on", vector, Verdict.IMPROVED, _ratios),
        _unchanged([component for component in vector if component.verdict == Verdict.UNCHANGED]),
        _part(
            "inconclusive on", [component for component in vector if component.measured], Verdict.INCONCLUSIVE, _hint
        ),
        _part("not measured on", [c for c in vector if not c.measured], Verdict.INCONCLUSIVE, _hint),
    ]
    told = ", ".join(part for part in parts if part)
    line = f"{told[:1].upper()}{told[1:]}."
    if not identical:
        return line
    unbooted = all(component.reason == SAME_CODE for component in vector)
    return f"Both kernels {'run the same code' if unbooted else 'are the same image'}. {line}"


def as_ratio(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio >= _PLAIN_RATIO else f"{ratio:.2g}x"


def as_percent(fraction: float) -> str:
    percent = 100 * fraction
    return f"{percent:.1f} %" if percent < _WHOLE_PERCENT else f"{percent:.0f} %"


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
        f"{component.uarch.name} ({SAME_CODE})" if component.reason == SAME_CODE else component.uarch.name
        for component in vector
    )
    seen = max((component.mde for component in vector if component.mde is not None), default=None)
    return f"no change on {names}" + (f" (would have seen {as_percent(seen)})" if seen is not None else "")


def _ratios(component: UarchVerdict) -> str:
    return ", ".join(_ratio(cell) for cell in component.moved)


def _ratio(cell: CellVerdict) -> str:
    ratio = cell.speaker.ratio
    return f"{as_ratio(ratio)} {cell.name}" if ratio is not None else cell.name


def _hint(component: UarchVerdict) -> str:
    return textwrap.shorten(component.hint, _LONGEST_HINT, placeholder=" ...")
