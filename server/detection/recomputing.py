"""Whether what is stored of trials and findings is still what their measurements say."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from server.detection.explaining import explained
from server.detection.judging import fresh_comparisons
from server.detection.models import Comparison, Finding
from server.detection.results import Result, component, remade
from server.detection.scope import has_told, judged_sessions, scope_of
from server.lab.models import Session, Trial

# Another version of the numeric libraries may change the last digits, never more.
_TOLERANCE = 1e-9
# Of a p-value below this no digit counts.
_NOTHING = 1e-15
_NUMBERS = (
    "base_mean",
    "base_sd",
    "patched_mean",
    "patched_sd",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "p_adjusted",
    "p_rank",
    "min_effect",
    "mde",
)
_WORDS = ("verdict", "reason", "base_boots", "patched_boots", "family_size", "flags")


@dataclass(frozen=True)
class Difference:
    """One field that is stored otherwise than it would be computed now: of `subject` ("finding 7"), of `what` in it."""

    subject: str
    what: str
    field: str
    stored: str
    fresh: str

    def __str__(self) -> str:
        return f"{self.subject}, {self.what}: {self.field} is {self.stored}, now {self.fresh}"


def differences(finding: Finding) -> list[Difference]:
    """Every field of the finding, and of every judged cell behind it, that no longer follows from the measurements."""
    name = f"finding {finding.pk}"
    cells: list[Difference] = []
    if finding.trial is not None:
        cells = trial_differences(finding.trial, name)
    elif finding.series is not None:
        scope = scope_of(finding.series, virtual_too=finding.virtual)
        cells = _cell_differences(name, scope.done if scope else [])
    if finding.series is None and not finding.verdicts.exists():
        # Suspected in a branch, and not judged by fresh boots.
        return cells
    return cells + [Difference(name, *row) for row in _finding_differences(finding)]


def trial_differences(trial: Trial, subject: str = "") -> list[Difference]:
    """The same for the cells of a trial, whatever it was asked for; none while it is not judged."""
    if trial.state != Trial.State.DONE:
        return []
    rows = trial.sessions.select_related("machine__uarch", "base_build", "patched_build").order_by("machine__name")
    sessions = list(rows)
    # Whether virtual machines were judged depends on the settings of that day: where there are comparisons, they were.
    virtual_too = Comparison.objects.filter(session__in=sessions).exists()
    judged = judged_sessions(sessions, virtual_too=virtual_too)[0]
    return _cell_differences(subject or f"trial {trial.key}", [session for session in judged if has_told(session)])


def judged_trials(series_id: int | None = None) -> Iterator[Trial]:
    """Trials that were judged and made no finding of their own; of one series, or all."""
    trials = Trial.objects.filter(state=Trial.State.DONE, finding=None).order_by("pk")
    if series_id is not None:
        trials = trials.filter(series=series_id)
    return trials.iterator()


def _cell_differences(subject: str, judged: Sequence[Session]) -> list[Difference]:
    stored = {
        _key(row): row
        for row in Comparison.objects.filter(session__in=judged).select_related(
            "session__machine", "case__benchmark", "metric", "core_type"
        )
    }
    fresh = {_key(row): row for row in fresh_comparisons(judged)}
    found = []
    for key in sorted(stored.keys() | fresh.keys()):
        old, new = stored.get(key), fresh.get(key)
        if old is None or new is None:
            presence = ("missing", "there") if old is None else ("there", "missing")
            found.append(Difference(subject, _name(old or new), "comparison", *presence))
        else:
            found += [Difference(subject, _name(old), *change) for change in _changed(old, new)]
    return found


def _finding_differences(finding: Finding) -> Iterator[tuple[str, str, str, str]]:
    result = remade(finding)
    if result is None:
        yield "result", "finding", "there", "nothing may be judged"
        return
    fresh = {
        "kind": str(result.kind),
        "headline": result.headline,
        "virtual": result.scope.virtual,
        "identical": result.identical,
        "gaps": [asdict(gap) for gap in result.gaps],
    }
    if finding.trial_id is not None:
        fresh["explanations"], fresh["counters"] = explained(finding)
    for name, value in fresh.items():
        if not is_same(getattr(finding, name), value):
            yield "result", name, repr(getattr(finding, name)), repr(value)
    yield from _vector_differences(finding, result)


def _vector_differences(finding: Finding, result: Result) -> Iterator[tuple[str, str, str, str]]:
    stored = {row.uarch_id: row for row in finding.verdicts.select_related("uarch")}
    fresh = {row.uarch_id: row for row in (component(finding, of) for of in result.vector)}
    for uarch in sorted(stored.keys() | fresh.keys()):
        old, new = stored.get(uarch), fresh.get(uarch)
        if old is None or new is None:
            present = old or new
            assert present is not None
            yield present.uarch.name, "verdict", *(("missing", "there") if old is None else ("there", "missing"))
            continue
        for name in ("verdict", "reason", "comparison_id", "mde"):
            before, now = getattr(old, name), getattr(new, name)
            if not is_same(before, now):
                yield old.uarch.name, name, _told(before), _told(now)


def _changed(old: Comparison, new: Comparison) -> Iterator[tuple[str, str, str]]:
    for name in _WORDS:
        if getattr(old, name) != getattr(new, name):
            yield name, _told(getattr(old, name)), _told(getattr(new, name))
    for name in _NUMBERS:
        before, now = getattr(old, name), getattr(new, name)
        if not is_same(before, now):
            yield name, _shown(before), _shown(now)


def is_same(before: object, now: object) -> bool:
    """Whether two values, of JSON too, are equal up to the last digits of their numbers."""
    if isinstance(before, float) and isinstance(now, float | int):
        return math.isclose(before, now, rel_tol=_TOLERANCE, abs_tol=_NOTHING)
    if isinstance(before, list) and isinstance(now, list | tuple):
        return len(before) == len(now) and all(is_same(*pair) for pair in zip(before, now, strict=True))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(is_same(before[key], now[key]) for key in before)
    return before == now


def _told(value: object) -> str:
    """A choice as the word that is stored."""
    return repr(str(value)) if isinstance(value, str) else repr(value)


def _shown(number: float | None) -> str:
    """With the digits that count."""
    return "None" if number is None else f"{number:.10g}"


def _key(row: Comparison) -> tuple[int, int, int, int]:
    return row.session_id, row.case_id, row.metric_id, row.core_type_id


def _name(row: Comparison | None) -> str:
    if row is None:
        return ""
    return f"{row.session.machine.name} {row.metric.name} of {row.case} ({row.core_type.name})"
