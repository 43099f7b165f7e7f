"""What tells a case from the other cases of its benchmark, in words that a mail's row has room for."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from server.results.models import Case

_NUMBER = re.compile(r"([A-Za-z_]\w*)-(\d+)(?=-|$)")
_BETWEEN = re.compile(r"([A-Za-z0-9.]+)-to-([A-Za-z0-9.]+)")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True)
class CaseWords:
    """`parameters` are what `words` are called; empty where they come from the case's name."""

    words: tuple[str, ...]
    parameters: tuple[str, ...] = ()


def words_of(cases: Iterable[Case]) -> dict[int, CaseWords]:
    """By case, its parameters in the order in which the names of the benchmark's cases have them."""
    by_benchmark: dict[int, dict[int, Case]] = defaultdict(dict)
    for case in cases:
        by_benchmark[case.benchmark_id][case.pk] = case
    found = {}
    for of_it in by_benchmark.values():
        places = _places(list(of_it.values()))
        found.update({pk: _words(case, places) for pk, case in of_it.items()})
    return found


def _places(cases: Sequence[Case]) -> dict[str, float]:
    """Where names of cases have each parameter: the stored ones are in no order that means anything."""
    seen: dict[str, list[int]] = defaultdict(list)
    for case in cases:
        for name, value in case.parameters.items():
            word = _NO_NAME.sub("-", str(value).replace("->", "-to-")).strip("-")
            at = [match.start() for match in re.finditer(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?!\w)", case.name)]
            if word and len(at) == 1:
                seen[name].append(at[0])
    return {name: statistics.fmean(at) for name, at in seen.items()}


def _words(case: Case, places: Mapping[str, float]) -> CaseWords:
    """Its parameters; of a case that tells none, the parts of its name."""
    if case.parameters:
        told = sorted(case.parameters.items(), key=lambda one: places.get(one[0], math.inf))
        words = (f"{name}={value}" if str(value).isdigit() else str(value) for name, value in told)
        return CaseWords(tuple(words), tuple(name for name, _value in told))
    # DRAM0-to-CXL is one thing, and a bare number says nothing without the word before it.
    parts = _NUMBER.sub(r"\1\0\2", _BETWEEN.sub("\\1\0->\0\\2", case.name).replace("\0->\0", "\1")).split("-")
    return CaseWords(tuple(part.replace("\1", "->").replace("\0", " ") for part in parts if part))
