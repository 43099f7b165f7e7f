"""From cells to comparisons: each by the looks of its session's design, then those of a machine as one family."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from server import stats
from server.detection.cells import MeasuredCell, read_cells
from server.detection.doubting import doubts_about
from server.detection.models import Comparison, Verdict
from server.detection.models.comparisons import CHANGES
from server.detection.notes import case_notes
from server.lab.models import Session
from server.stats.evidence import with_data
from server.stats.sequential import Design
from server.stats.stopping import CellProgress, judge_cells

# A spread needs two boots.
_FEWEST_BOOTS = 2


def design_of(session: Session) -> Design:
    """When the boots of a session of a trial are looked at."""
    return Design(looks=tuple(look for look in session.looks if look >= _FEWEST_BOOTS) or (_FEWEST_BOOTS,))


def is_fixed(session: Session) -> bool:
    """Judged once, at a number of boots that was fixed before: no look can ask for more."""
    return len(design_of(session).looks) == 1


def ended(session: Session) -> bool:
    """Whether its last look takes all that is left of alpha: nothing that was measured decided that it is the last."""
    return session.cut_short or is_fixed(session)


def fresh_comparisons(sessions: Sequence[Session]) -> list[Comparison]:
    """Unsaved comparisons of all cells of these sessions; those of a session are one family.

    What one machine says, or makes up, changes nothing of what is claimed on another. What a comparison shows (boots,
    means, ratio, interval) is what the look saw that decided it, else the last look.
    """
    cells = read_cells(sessions)
    judged = _in_families(cells, _compared(cells), number=len(sessions))
    doubts = doubts_about(sessions)
    notes = {(note.session_id, note.benchmark, note.case): note.text for note in case_notes(sessions)}
    rows = []
    for cell, result in zip(cells, judged, strict=True):
        row = _row(cell, result)
        note = notes.get((row.session_id, cell.case.benchmark.name, cell.case.name))
        if note and row.verdict == Verdict.INCONCLUSIVE:
            row.reason = f"{row.reason}; {note}"
        doubt = doubts.get(row.session_id)
        if doubt is not None and (row.verdict in CHANGES or (doubt.whole and row.verdict == Verdict.UNCHANGED)):
            row.verdict, row.reason = Verdict.INCONCLUSIVE, doubt.reason
        rows.append(row)
    return rows


def _in_families(
    cells: Sequence[MeasuredCell], compared: Sequence[stats.Comparison], *, number: int
) -> list[stats.Comparison]:
    """Adjusted within each of so many sessions; `read_cells` gives the cells of a session one after the other."""
    pairs = zip(cells, compared, strict=True)
    families = [[one for _, one in of] for _, of in groupby(pairs, key=lambda pair: pair[0].session.pk)]
    return [one for family in families for one in stats.judge_family(family, families=number)]


def _compared(cells: Sequence[MeasuredCell]) -> list[stats.Comparison]:
    """One comparison for each cell, in their order; cells of one design are worked off together."""
    groups: dict[tuple[Design | None, bool], list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        session = cell.session
        # Sessions of before there were trials have no looks: all their boots are compared once.
        key = (design_of(session), ended(session)) if session.looks else (None, True)
        groups[key].append(index)
    found: dict[int, stats.Comparison] = {}
    for (design, is_ended), places in groups.items():
        values = [cells[place].values for place in places]
        if design is None:
            # Exact metrics were not told apart then.
            results = stats.compare([replace(with_data(one), exact=False) for one in values])
        else:
            progress = judge_cells(values, design, ended=is_ended)
            results = [_seen(*pair) for pair in zip(values, progress, strict=True)]
        found.update(zip(places, results, strict=True))
    return [found[index] for index in range(len(cells))]


def _seen(values: stats.Cell, progress: CellProgress) -> stats.Comparison:
    """The comparison of a cell's design; one that was never looked at shows its means, and no evidence."""
    if progress.comparison is not None:
        return _still_seen(progress, progress.comparison)
    plain = stats.compare([with_data(values)])[0]
    return stats.Comparison(
        verdict=stats.Verdict.INCONCLUSIVE,
        reason=plain.reason if plain.p_value is None else progress.reason,
        flags=plain.flags,
        base=plain.base,
        patched=plain.patched,
        ratio=plain.ratio,
    )


def _still_seen(progress: CellProgress, found: stats.Comparison) -> stats.Comparison:
    """A change is claimed only if all boots show it.

    A cell that changed at an early look may have got more boots for the sake of others. Where boots alternate between
    two modes, the first few of the kernels can by chance lie in one mode each, which looks certain; more boots tell.
    """
    decided, last = progress.decided_at, progress.looks[-1]
    if decided is None or decided == last or found.verdict.value not in CHANGES:
        return found
    reason = f"{found.verdict} at {decided.base} boots a side, no longer at {last.base}: {last.comparison.reason}"
    return replace(last.comparison, verdict=stats.Verdict.INCONCLUSIVE, reason=reason, p_value=progress.p_value)


def _row(of: MeasuredCell, result: stats.Comparison) -> Comparison:
    return Comparison(
        session=of.session,
        case=of.case,
        metric=of.metric,
        core_type=of.core_type,
        verdict=Verdict(result.verdict.value),
        reason=result.reason,
        base_boots=result.base.boots,
        patched_boots=result.patched.boots,
        base_mean=result.base.mean,
        base_sd=result.base.sd,
        patched_mean=result.patched.mean,
        patched_sd=result.patched.sd,
        ratio=result.ratio,
        ratio_low=result.ratio_low,
        ratio_high=result.ratio_high,
        p_value=result.p_value,
        p_adjusted=result.p_adjusted,
        p_rank=result.p_rank,
        family_size=result.family_size,
        min_effect=of.values.min_effect,
        mde=result.mde,
        flags=[flag.value for flag in result.flags],
    )
