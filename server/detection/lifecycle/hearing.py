"""Comparisons as they are heard after the checks: what a failed check takes away claims nothing any more."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from server.detection.lifecycle.checks import Name, Outcome
from server.detection.models import Comparison, Verdict

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
        if check.get("outcome") != Outcome.FAILED or check.get("name") not in _SILENCING:
            continue
        single = check.get("comparisons")
        of_it = row.pk in single if single else check.get("machine") == row.session.machine.name
        if of_it:
            yield str(check.get("text", ""))


def _quiet(row: Comparison, why: str) -> Comparison:
    other = copy(row)
    other.verdict, other.reason = Verdict.INCONCLUSIVE, why
    return other
