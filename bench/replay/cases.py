"""Published cases as what simulated machines would measure: means, spreads, and what each patch does to them.

Where a thread reads "unchanged" the patch does nothing here, for the published difference of such a row is its
noise; a patch of a walk that the thread calls worth nothing does nothing either. Rows without means get a round one.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.kit import ROOT, KitError
from demo.lab.replay.studies import ROUND_MEAN, UNPUBLISHED, Row, Spread, Study, slug

CASES = ROOT.parent / "shared" / "cases" / "published.json"
# As the mail of the series says them.
WORDS = {
    "folio-copy-batch": {
        "folio-copy": {
            "hot": "no eviction",
            "cold": "evicted before each copy",
            "total": "bytes per run",
        }
    }
}
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
        rows, words = tuple(_row(row, unpublished) for row in chosen), WORDS.get(case["id"], {})
        return Study(case["id"], case["title"], (case["title"],), rows, words)
    patches = tuple(walk["points"][1:])
    rows = tuple(_walked(_row(row, unpublished), row, walk, patches) for row in chosen if row["benchmark"] == _WALKED)
    return Study(case["id"], case["title"], patches, rows)


def _row(told: dict[str, Any], unpublished: Spread) -> Row:
    uarch, core_type = CORES.get(told["uarch"], (told["uarch"], "all"))
    base = told["base"] if told["base"] is not None else ROUND_MEAN
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
        parameters=tuple((name, str(value)) for name, value in told["parameters"].items()),
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
    return Spread.of_share(share)
