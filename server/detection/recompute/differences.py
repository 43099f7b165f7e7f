"""Whether what is stored of trials, findings and noise is still what the measurements say."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields

from server.detection.findings.explanation import explained
from server.detection.findings.result import Result, component, remade
from server.detection.models import Comparison, Finding, NoiseProfile
from server.detection.models.finding import COVERAGE, FIGURES
from server.detection.noise.profiles import Profile, fresh_profiles
from server.detection.trials.judgement import fresh_comparisons
from server.detection.trials.scope import has_told, judged_sessions
from server.lab.models import Machine, Session, Trial
from server.results.models import ArchivedSession, KeptKind

# Another version of the numeric libraries may change the last digits, never more.
TOLERANCE = 1e-9
# Of a p-value below this no digit counts.
_NOTHING = 1e-15


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


def finding_differences(finding: Finding) -> list[Difference]:
    """Every field of the finding, and of every judged cell behind it, that no longer follows from the measurements."""
    name = f"finding {finding.pk}"
    if finding.trial is not None and has_left(finding.trial):
        return []
    cells = trial_differences(finding.trial, name) if finding.trial is not None else []
    if finding.series is None and not finding.verdicts.exists():
        # Suspected in a branch, and not judged by fresh boots.
        return cells
    return cells + [Difference(name, *row) for row in _finding_differences(finding)]


def trial_differences(trial: Trial, subject: str = "") -> list[Difference]:
    """The same for the cells of a trial, whatever it was asked for; none while it is not judged."""
    if trial.state != Trial.State.DONE or has_left(trial):
        return []
    rows = trial.sessions.select_related("machine__uarch", "base_build", "patched_build").order_by("machine__name")
    sessions = list(rows)
    # Whether virtual machines were judged depends on the settings of that day: where there are comparisons, they were.
    virtual_too = Comparison.objects.filter(session__in=sessions).exists()
    judged = judged_sessions(sessions, virtual_too=virtual_too)[0]
    return _cell_differences(subject or f"trial {trial.key}", [session for session in judged if has_told(session)])


def has_left(trial: Trial) -> bool:
    """Whether some of what it was judged by is in the archive alone: nothing can be computed anew."""
    left = ArchivedSession.objects.filter(session__trial=trial).exclude(left_at=None)
    return left.filter(kind__in=[KeptKind.SAMPLES, KeptKind.CONDITIONS]).exists()


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
        for name in ("verdict", "reason", "comparison_id", *COVERAGE):
            before, now = getattr(old, name), getattr(new, name)
            if not is_same(before, now):
                yield old.uarch.name, name, _told(before), _told(now)


def _changed(old: Comparison, new: Comparison) -> Iterator[tuple[str, str, str]]:
    for name in FIGURES:
        before, now = getattr(old, name), getattr(new, name)
        if not is_same(before, now):
            yield name, _told(before), _told(now)


def is_same(before: object, now: object) -> bool:
    """Whether two values, of JSON too, are equal up to the last digits of their numbers."""
    if isinstance(before, float) and isinstance(now, float | int):
        return math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=_NOTHING)
    if isinstance(before, list) and isinstance(now, list | tuple):
        return len(before) == len(now) and all(is_same(*pair) for pair in zip(before, now, strict=True))
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(is_same(before[key], now[key]) for key in before)
    return before == now


def _told(value: object) -> str:
    """A choice as the word that is stored, a number with the digits that count."""
    if isinstance(value, float):
        return f"{value:.10g}"
    return repr(str(value)) if isinstance(value, str) else repr(value)


def _key(row: Comparison) -> tuple[int, int, int, int]:
    return row.session_id, row.case_id, row.metric_id, row.core_type_id


def _name(row: Comparison | None) -> str:
    if row is None:
        return ""
    return f"{row.session.machine.name} {row.metric.name} of {row.case} ({row.core_type.name})"


def noise_differences(machine: Machine) -> Iterator[Difference]:
    """Every field of the machine's stored profiles that is not what its comparisons, up to their last one, give now."""
    profiles = NoiseProfile.objects.filter(machine=machine).select_related("case__benchmark", "metric", "core_type")
    stored = {(row.case_id, row.metric_id, row.core_type_id): row for row in profiles}
    fresh = fresh_profiles(machine, {key: row.last_at for key, row in stored.items()})
    for key, row in stored.items():
        yield from _profile_changes(machine, row, fresh.get(key))


def _profile_changes(machine: Machine, row: NoiseProfile, now: Profile | None) -> Iterator[Difference]:
    what = f"{row.metric.name} of {row.case} ({row.core_type.name})"
    subject = f"noise of {machine.name}"
    if now is None:
        yield Difference(subject, what, "profile", "there", "missing")
        return
    for one in fields(Profile):
        before, after = getattr(row, one.name), getattr(now, one.name)
        if not _same(before, after):
            yield Difference(subject, what, one.name, str(before), str(after))


def _same(stored: object, fresh: object) -> bool:
    if isinstance(stored, list) and isinstance(fresh, list):
        return len(stored) == len(fresh) and all(map(_same, stored, fresh))
    if isinstance(stored, float) and isinstance(fresh, float):
        return math.isclose(stored, fresh, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return stored == fresh
