"""What a walk says in words: which patches earn their place, and whether they add up."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from server.detection.bisecting.chains import Link, agree, link
from server.detection.bisecting.walk_cells import Key, key_of, name_of_cell
from server.detection.headline import as_percent, as_ratio
from server.detection.models import Comparison, Verdict
from server.detection.scope import is_same_code
from server.detection.vector import shorten
from server.lab.models import Session, Trial
from server.sources.models import Series

_CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


def sentence_of(trial: Trial, sessions: Sequence[Session], rows: Sequence[Comparison]) -> str:
    """What one patch adds, over all machines: "adds nothing beyond 1.0 % on zen3 and zen5"."""
    if trial.state not in Trial.FINAL:
        return "is being measured"
    by_machine: dict[int, list[Comparison]] = defaultdict(list)
    for row in rows:
        by_machine[row.session.machine_id].append(row)
    said: dict[str, list[str]] = defaultdict(list)
    for session in sorted(sessions, key=lambda session: session.machine.uarch.name):
        said[_on_machine(session, by_machine[session.machine_id])].append(session.machine.uarch.name)
    parts = [f"{words} on {_listed(names)}" for words, names in said.items()]
    return "; ".join(parts) or f"was not measured: {trial.reason}"


def _on_machine(session: Session, rows: Sequence[Comparison]) -> str:
    if is_same_code(session):
        return "changes no code"
    if not rows:
        return f"was not measured ({session.reason or 'no boot gave a value'})"
    changed = [told for verdict in _CHANGES if (told := _changed([row for row in rows if row.verdict == verdict]))]
    if changed:
        return ", ".join(changed)
    unsure = [name_of_cell(row) for row in rows if row.verdict == Verdict.INCONCLUSIVE]
    if unsure:
        return f"cannot be told ({shorten(unsure)})"
    return f"adds nothing beyond {as_percent(max(row.min_effect for row in rows))}"


def _changed(rows: Sequence[Comparison]) -> str:
    """Of changes in one direction the largest: what a patch costs does not hide behind what it gains."""
    if not rows:
        return ""
    most = max(rows, key=lambda row: abs(math.log(row.ratio)) if row.ratio and row.ratio > 0 else 0.0)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{most.verdict} {name_of_cell(most)} ({as_ratio(most.ratio or 1)}){more}"


def closing_sentences(series: Series, so_far: Mapping[Key, Link | None]) -> tuple[str, ...]:
    """For each machine, whether its patches add up to what the whole series was measured to do."""
    rows = Comparison.objects.filter(session__trial__series=series, session__trial__purpose=Trial.Purpose.SERIES)
    wholes = {key_of(row): row for row in rows.select_related("session__machine", "case", "metric", "core_type")}
    shared: dict[str, list[tuple[Comparison, Link, Link]]] = defaultdict(list)
    for key, together in so_far.items():
        row = wholes.get(key)
        whole = link(row.ratio, row.ratio_low, row.ratio_high) if row else None
        if row and whole and together:
            shared[row.session.machine.name].append((row, together, whole))
    return tuple(_closing(machine, cells) for machine, cells in sorted(shared.items()))


def _closing(machine: str, cells: Sequence[tuple[Comparison, Link, Link]]) -> str:
    apart = [
        f"{name_of_cell(row)} ({as_ratio(together.ratio)} against {as_ratio(whole.ratio)})"
        for row, together, whole in cells
        if not agree(together, whole, cells=len(cells), slack=row.min_effect)
    ]
    if apart:
        return f"{machine}: the patches do not add up to the whole series in {shorten(apart)}"
    if len(cells) == 1:
        _row, together, whole = cells[0]
        told = f"{as_ratio(together.ratio)} patch by patch, {as_ratio(whole.ratio)} at once"
        return f"{machine}: the patches add up to the whole series ({told})"
    return f"{machine}: the patches add up to the whole series in all {len(cells)} cells"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
