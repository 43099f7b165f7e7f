"""Which benchmarks a series is measured with, and which rules ask for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from server.sources.measure_rules import DEFAULT_PATTERN
from server.sources.models import MeasureRule, Patch, Series
from server.sources.wildcards import matches_path

# A series that changes more files than this is told by the first ones.
_MOST_PATHS = 300


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """`because` has the rules, as pattern and note; none where the rule was changed after the series was applied."""

    benchmark: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """`decided` is False while the series is not applied: then the rows are what the rules ask for now."""

    rows: tuple[MeasuredRow, ...]
    decided: bool


def measured_of(series: Series) -> Measured:
    """Two queries; `series` was read with its base and the tree of that, which asks for benchmarks of its own."""
    lists = Patch.objects.filter(series=series).order_by("index").values_list("paths", flat=True)
    paths = list(islice(dict.fromkeys(chain.from_iterable(lists)), _MOST_PATHS))
    rules = [rule for rule in MeasureRule.objects.filter(enabled=True) if _applies(rule, paths)]
    decided = bool(series.benchmarks)
    names = series.benchmarks if decided else sorted({name for rule in rules for name in rule.benchmarks})
    tree = series.base.tree if series.base else None
    of_tree = tree.benchmarks if tree else []
    rows = (
        MeasuredRow(name, (*_because(name, rules), *([f"the tree {tree}"] if name in of_tree else [])))
        for name in sorted({*names, *of_tree})
    )
    return Measured(tuple(rows), decided)


def _applies(rule: MeasureRule, paths: Sequence[str]) -> bool:
    return rule.pattern == DEFAULT_PATTERN or any(matches_path(rule.pattern, path) for path in paths)


def _because(name: str, rules: Sequence[MeasureRule]) -> tuple[str, ...]:
    return tuple(_told(rule) for rule in rules if name in rule.benchmarks)


def _told(rule: MeasureRule) -> str:
    if rule.pattern == DEFAULT_PATTERN:
        return "the default set"
    return f"{rule.pattern} ({rule.note})" if rule.note else rule.pattern
