"""Verdicts on values that real emulated boots gave; the files lie beside the repository, where they are present."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from server.stats import Cell, CellComparison, StatisticalVerdict, compare, judge_family

SHARED = Path(os.environ.get("TIDEMARK_SHARED", Path(__file__).parents[3] / "shared")) / "benchmark-outputs" / "ab"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="no recorded boots beside the repository")


def judged(name: str) -> dict[str, CellComparison]:
    values: dict[str, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    units: dict[str, str] = {}
    for line in (SHARED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
        row = json.loads(line)
        if row["iter"] > 0:
            values[row["bench"]][row["side"], row["boot"]].append(row["value"])
            units[row["bench"]] = row["unit"]
    cells = [
        Cell(
            base=[kept for (side, _), kept in boots.items() if side == "base"],
            patched=[kept for (side, _), kept in boots.items() if side != "base"],
            better="higher" if units[bench] == "MB/s" else "lower",
            min_effect=0.01,
        )
        for bench, boots in values.items()
    ]
    return dict(zip(values, judge_family(compare(cells)), strict=True))


@pytest.mark.parametrize("cpu", ["Haswell", "EPYC-Milan"])
def test_doubled_clear_page_erms_regresses_cpus_that_have_erms(cpu: str) -> None:
    results = judged(f"uarch-icount-{cpu}")
    assert results["fault_4k"].verdict == results["fault_thp"].verdict == StatisticalVerdict.REGRESSED
    assert results["fault_4k"].ratio == pytest.approx(1.71, abs=0.01)
    assert results["fault_thp"].ratio == pytest.approx(1.986, abs=0.001)
    assert results["memcpy_user"].verdict == results["cow_fault"].verdict == StatisticalVerdict.UNCHANGED
    assert results["mmap_munmap"].verdict in (StatisticalVerdict.UNCHANGED, StatisticalVerdict.INCONCLUSIVE)


@pytest.mark.parametrize("cpu", ["Nehalem", "EPYC"])
def test_doubled_clear_page_erms_changes_nothing_on_cpus_without_erms(cpu: str) -> None:
    results = judged(f"uarch-icount-{cpu}")
    # The mapping benchmark has two modes 0.7 % apart: two boots a side cannot always tell it from a change.
    assert results.pop("mmap_munmap").verdict in (StatisticalVerdict.UNCHANGED, StatisticalVerdict.INCONCLUSIVE)
    assert {result.verdict for result in results.values()} == {StatisticalVerdict.UNCHANGED}


@pytest.mark.parametrize("name", ["tcg-icount", "tcg-quiet", "tcg-loaded"])
def test_doubled_clearing_is_found_in_any_noise_and_nothing_else_is(name: str) -> None:
    results = judged(name)
    assert results.pop("fault_4k").verdict == StatisticalVerdict.REGRESSED
    assert {result.verdict for result in results.values()} <= {
        StatisticalVerdict.UNCHANGED,
        StatisticalVerdict.INCONCLUSIVE,
    }
