"""Which patch it was: the bisections of the finding, and what they cost."""

from collections.abc import Iterator

from demo.checks.facts import Check, check
from demo.outcomes import Outcome
from server.detection.models import Bisection, BisectionState, Finding, Verdict
from server.sources.models import Series

_CHANGES = frozenset({Verdict.REGRESSED.value, Verdict.IMPROVED.value})


def culprit_checks(series: Series, outcome: Outcome) -> list[Check]:
    """Nothing for a series in which nothing moves."""
    if not outcome.culprit:
        return []
    right = f"patch {outcome.culprit} of {series.total}, {_searches(series)} bisections"
    return [check("culprit", _culprit_faults(series, outcome), right)]


def _searches(series: Series) -> int:
    return Bisection.objects.filter(finding__series=series).count()


def _culprit_faults(series: Series, outcome: Outcome) -> Iterator[str]:
    finding = Finding.objects.filter(series=series).select_related("culprit").first()
    patch = series.patches.filter(index=outcome.culprit).select_related("revision").first()
    if finding is None or patch is None or patch.revision is None:
        yield "there is no finding, or no such patch"
        return
    if finding.culprit != patch.revision:
        named = finding.culprit.subject if finding.culprit else "none"
        yield f"{named} instead of {patch.subject}: {finding.reason}"
    for search in finding.bisections.select_related("machine"):
        if search.state != BisectionState.FOUND:
            yield f"the bisection on {search.machine.name} is {search.state}: {search.reason}"
    searched = set(finding.bisections.values_list("machine__uarch__name", flat=True))
    moved = {uarch for uarch, verdict in outcome.verdicts.items() if verdict in _CHANGES}
    # One patch alone is the culprit without a search.
    if series.total > 1 and (missing := sorted(moved - searched)):
        yield f"not searched on {', '.join(missing)}"
