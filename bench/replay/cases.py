"""Published cases as what simulated machines would measure, and what simulated kernels hold."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.kit import ROOT, KitError

# Beginnings of the names of files that say what a commit holds.
STUDY, PATCH = "study-", "patch-"


@dataclass(frozen=True)
class Kernel:
    """What a simulated image holds: which study it belongs to, and which of its patches are in it, from 1."""

    study: str
    patches: frozenset[int] = frozenset()


def kernel_of(names: Iterable[str]) -> Kernel:
    """What a commit with these files holds, whoever made it: a revert of one patch is read as well."""
    kept = list(names)
    study = next(name.removeprefix(STUDY) for name in kept if name.startswith(STUDY))
    return Kernel(study, frozenset(int(name.removeprefix(PATCH)) for name in kept if name.startswith(PATCH)))


@dataclass(frozen=True)
class Spread:
    """Standard deviations on logarithms."""

    boots: float
    runs: float


@dataclass(frozen=True)
class Row:
    """One cell: its base mean, the ratio that each patch in turn makes, and the spreads without and with patches."""

    uarch: str
    benchmark: str
    case: str
    metric: str
    unit: str
    better: str
    core_type: str
    base: float
    steps: tuple[float, ...]
    spreads: tuple[Spread, Spread]
    expected: str

    @property
    def cell(self) -> tuple[str, str, str, str, str]:
        return self.uarch, self.benchmark, self.case, self.metric, self.core_type

    @property
    def is_counter(self) -> bool:
        return self.expected == "counter"


@dataclass(frozen=True)
class Study:
    """One published series; `patches` are the subjects of its patches."""

    name: str
    title: str
    patches: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def uarchs(self) -> list[str]:
        return sorted({row.uarch for row in self.rows})

    @property
    def benchmarks(self) -> list[str]:
        return sorted({row.benchmark for row in self.rows})

    def without_effect(self, name: str) -> "Study":
        """The same machines, cells and spreads, and a series that changes nothing."""
        rows = tuple(replace(row, steps=(1.0,) * len(row.steps), expected="unchanged") for row in self.rows)
        return replace(self, name=name, title=f"{self.title}, without any effect", rows=rows)

    def only(self, **effects: bool) -> "Study":
        """The study in which microarchitectures that are named with False see no effect."""
        rows = (row if effects.get(row.uarch, True) else replace(row, steps=(1.0,)) for row in self.rows)
        return replace(self, rows=tuple(rows))


# Published cases as what simulated machines would measure: means, spreads, and what each patch does to them.
#
# Where a thread reads "unchanged" the patch does nothing here, for the published difference of such a row is its
# noise; a patch of a walk that the thread calls worth nothing does nothing either. Rows without means get a round
# one.

CASES = ROOT.parent / "shared" / "cases" / "published.json"
# This share of a published variance lies between boots: nobody published it; bench.statistics.published tries more.
BETWEEN_BOOTS = 0.3
# Standard deviation between boots, and between the runs of one, where no spread was published. Three times as much, and
# no 16 boots would tell "unchanged" from 1 % in every such cell; those who published them told 4.6 % from nothing.
UNPUBLISHED = 0.005
_ROUND_MEAN = 10.0
_LONGEST_NAME = 60
# How the file names the kinds of cores of one machine.
CORES = {"cix-p1-core-type-a": ("cix-p1", "cortex-a720"), "cix-p1-core-type-b": ("cix-p1", "cortex-a520")}
# What the reviewers of the walked series read out of its figures.
WORTH_NOTHING = ("copy", "zero-alloc")
# Of the walked series only these were published patch by patch.
_WALKED = "kernel-compile"
_LEFT_OUT = frozenset({"reported"})


def read_studies(path: Path = CASES, *, unpublished: float = UNPUBLISHED) -> dict[str, Study]:
    """Studies by the names that the file gives them; `unpublished` is the spread of rows without one.

    Raises KitError without the file.
    """
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    except OSError as error:
        raise KitError(f"no published cases: {error}; name the file with --cases") from error
    return {case["id"]: _study(case, Spread(unpublished, unpublished)) for case in cases}


def _study(case: dict[str, Any], unpublished: Spread) -> Study:
    walk = case.get("patch_walk_percent_change")
    chosen = [row for row in case["rows"] if row["expected_verdict"] not in _LEFT_OUT]
    if walk is None:
        return Study(case["id"], case["title"], (case["title"],), tuple(_row(row, unpublished) for row in chosen))
    patches = tuple(walk["points"][1:])
    rows = tuple(_walked(_row(row, unpublished), row, walk, patches) for row in chosen if row["benchmark"] == _WALKED)
    return Study(case["id"], case["title"], patches, rows)


def _row(told: dict[str, Any], unpublished: Spread) -> Row:
    uarch, core_type = CORES.get(told["uarch"], (told["uarch"], "all"))
    base = told["base"] if told["base"] is not None else _ROUND_MEAN
    ratio = told["patched"] / told["base"] if told["base"] is not None else told["published_ratio"]
    return Row(
        uarch=uarch,
        benchmark=slug(told["benchmark"]),
        case=slug(" ".join(str(value) for value in told["parameters"].values())),
        metric=slug(told["metric"]),
        unit=told["unit"],
        better=told["better"],
        core_type=core_type,
        base=float(base),
        steps=(1.0 if told["expected_verdict"] == "unchanged" else ratio,),
        spreads=(_spread(told, "base", unpublished), _spread(told, "patched", unpublished)),
        expected=told["expected_verdict"],
    )


def _walked(row: Row, told: dict[str, Any], walk: dict[str, Any], patches: Sequence[str]) -> Row:
    percents = walk[f"jobs_{told['parameters']['jobs']}"][told["metric"]]
    levels = [1 + percent / 100 for percent in percents]
    steps = [after / before for before, after in pairwise(levels)]
    kept = (1.0 if name in WORTH_NOTHING else step for name, step in zip(patches, steps, strict=True))
    return replace(row, steps=tuple(kept))


def _spread(told: dict[str, Any], arm: str, unpublished: Spread) -> Spread:
    published, mean = told.get(f"{arm}_spread"), told[arm]
    if published is None:
        return unpublished
    share = published / 100 if told["spread_kind"] == "percent" else published / mean
    variance = math.log1p(share**2)
    return Spread(math.sqrt(BETWEEN_BOOTS * variance), math.sqrt((1 - BETWEEN_BOOTS) * variance))


def slug(text: str) -> str:
    """A name as the service takes them."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text.replace("->", "-to-")).strip("-")[:_LONGEST_NAME]
