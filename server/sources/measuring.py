"""What to measure: changed paths choose benchmarks by rules that admins edit; the default set always runs."""

from collections.abc import Iterable

from server.sources.measure_rules import DEFAULT_PATTERN, RULES
from server.sources.models import MeasureRule
from server.sources.wildcards import matches_path


def benchmarks_for(paths: Iterable[str]) -> list[str]:
    """What the changed `paths` ask to be measured, in the order of names; the default set is always among it.

    Entries are names of benchmarks, or BENCHMARK/CASE with the beginning of a case's name. Empty without any rule.
    """
    changed = set(paths)
    wanted: set[str] = set()
    for rule in MeasureRule.objects.filter(enabled=True):
        if rule.pattern == DEFAULT_PATTERN or any(matches_path(rule.pattern, path) for path in changed):
            wanted.update(rule.benchmarks)
    return sorted(wanted)


def load_default_rules() -> int:
    """Add the rules that a new site begins with where they are missing; returns how many. Edited ones stay."""
    known = set(MeasureRule.objects.values_list("pattern", flat=True))
    missing = [
        MeasureRule(pattern=rule.pattern, benchmarks=list(rule.benchmarks), note=rule.note)
        for rule in RULES
        if rule.pattern not in known
    ]
    MeasureRule.objects.bulk_create(missing, ignore_conflicts=True)
    return len(missing)
