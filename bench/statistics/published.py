"""Published results, measured again in simulation: does every row get the verdict that its thread gave it?

    python -m bench.statistics.published [--cases FILE] [--seeds 200] [--min-effect 0.01] [--all]

The published spread is taken as the standard deviation of one measurement (log-normal). How much of that variance lies
between boots nobody published, so a few shares are tried. Where the thread reads "unchanged", both kernels are given
the same mean; its published means are simulated too, for information.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import special

from bench.kit import ROOT, KitError, Row
from bench.table import table
from server.stats import Cell, StatisticalVerdict, compare

CASES = ROOT.parent / "shared" / "cases" / "published.json"
BOOTS, RUNS = 7, 3
# Shares of the variance that lie between boots.
SHARES = (0.0, 0.3, 0.6)
JUDGED = (StatisticalVerdict.IMPROVED, StatisticalVerdict.REGRESSED, StatisticalVerdict.UNCHANGED)
OPPOSITE = {
    StatisticalVerdict.IMPROVED: {StatisticalVerdict.REGRESSED},
    StatisticalVerdict.REGRESSED: {StatisticalVerdict.IMPROVED},
}
WANTED = 0.97
# A row that a t test finds this often must be found by ours in `WANTED`; in between lies the chance of few sessions.
SURELY = 0.99
# What a right 95 % interval may call wrongly: beyond the minimum effect, on either side.
ERRING = 0.025


@dataclass(frozen=True)
class Published:
    """One row with means and relative spreads; one that is not `judged` is shown for information."""

    name: str
    better: Literal["lower", "higher"]
    means: tuple[float, float]
    spreads: tuple[float, float]
    expected: StatisticalVerdict
    judged: bool = True

    def decidable(self, share: float, min_effect: float) -> bool:
        """Whether a t interval on boot means would surely find the expected verdict in `WANTED` of sessions.

        That needs the change to be so many standard errors beyond (or within) the minimum effect.
        """
        variances = [math.log1p(spread**2) for spread in self.spreads]
        error = math.sqrt(sum(variances) * (share + (1 - share) / RUNS) / BOOTS)
        freedom = 2 * BOOTS - 2
        needed = (special.stdtrit(freedom, 0.975) + special.stdtrit(freedom, SURELY)) * error
        beyond = abs(abs(math.log(self.means[1] / self.means[0])) - math.log1p(min_effect))
        return bool(beyond >= needed)


@dataclass(frozen=True)
class Outcome:
    """What the simulated sessions of one row were called, as shares."""

    row: Published
    share: float
    decidable: bool
    verdicts: dict[StatisticalVerdict, float]

    @property
    def right(self) -> float:
        return self.verdicts[self.row.expected]

    @property
    def opposite(self) -> float:
        """Calls of the wrong sign; where no change is expected, every call of a change counts."""
        wrong = OPPOSITE.get(self.row.expected, {StatisticalVerdict.IMPROVED, StatisticalVerdict.REGRESSED})
        return sum(self.verdicts[verdict] for verdict in wrong)

    @property
    def mark(self) -> str:
        if not self.row.judged:
            return "-"
        if self.right >= WANTED:
            return "pass"
        if self.decidable:
            return "FAIL"
        return "in noise" if self.opposite <= ERRING else "FAIL"


def read_cases(path: Path) -> tuple[list[Published], Counter[str]]:
    """The rows that can be simulated, and how many others there are of each kind. Raises KitError without the file."""
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    except OSError as error:
        raise KitError(f"no published cases: {error}; name the file with --cases") from error
    judged, others = [], Counter[str]()
    for case in cases:
        for number, row in enumerate(case["rows"]):
            if row["expected_verdict"] not in JUDGED:
                others[row["expected_verdict"]] += 1
            elif row["base_spread"] is None or row["patched_spread"] is None:
                others["no spread published"] += 1
            else:
                judged += _readings(_published(f"{case['id']}/{number}", row))
    return judged, others


def _published(name: str, row: Row) -> Published:
    percent = row["spread_kind"] == "percent"
    base, patched = (
        row[f"{arm}_spread"] / 100 if percent else row[f"{arm}_spread"] / row[arm] for arm in ("base", "patched")
    )
    return Published(
        name=f"{name} {row['uarch']} {' '.join(str(value) for value in row['parameters'].values())}"[:48],
        better=row["better"],
        means=(row["base"], row["patched"]),
        spreads=(base, patched),
        expected=StatisticalVerdict(row["expected_verdict"]),
    )


def _readings(row: Published) -> list[Published]:
    if row.expected is not StatisticalVerdict.UNCHANGED:
        return [row]
    middle = math.sqrt(row.means[0] * row.means[1])
    equal = replace(row, name=f"{row.name}, equal means", means=(middle, middle))
    return [equal, replace(row, name=f"{row.name}, as published", judged=False)]


def simulate(row: Published, *, share: float, seeds: int, min_effect: float) -> Iterator[Cell]:
    """Sessions of `BOOTS` boots a side; seed k gives the same cell however many seeds are asked for."""
    for seed in range(seeds):
        generator = np.random.default_rng([seed, *row.name.encode()])
        arms = []
        for mean, spread in zip(row.means, row.spreads, strict=True):
            variance = math.log1p(spread**2)
            boots = generator.normal(0, math.sqrt(share * variance), (BOOTS, 1))
            runs = generator.normal(0, math.sqrt((1 - share) * variance), (BOOTS, RUNS))
            arms.append(list(mean * np.exp(boots + runs - variance / 2)))
        yield Cell(base=arms[0], patched=arms[1], better=row.better, min_effect=min_effect)


def judge(row: Published, *, share: float, seeds: int, min_effect: float) -> Outcome:
    results = compare(list(simulate(row, share=share, seeds=seeds, min_effect=min_effect)))
    counts = Counter(result.verdict for result in results)
    shares = {verdict: counts[verdict] / seeds for verdict in StatisticalVerdict}
    return Outcome(row, share, row.decidable(share, min_effect), shares)


def outcomes(rows: Sequence[Published], *, seeds: int, min_effect: float) -> list[Outcome]:
    return [judge(row, share=share, seeds=seeds, min_effect=min_effect) for row in rows for share in SHARES]


def share_right(found: Sequence[Outcome]) -> float:
    """Of the judged rows, how many get their verdict wherever the noise allows one, whatever the share of boots."""
    names = {outcome.row.name for outcome in found if outcome.row.judged}
    low = {outcome.row.name for outcome in found if outcome.mark == "FAIL"}
    return 1 - len(low) / len(names)


def report(found: Sequence[Outcome], others: Counter[str], *, everything: bool) -> str:
    head = ["published row", "change", "noise", "between boots", "expected", "right", "inconclusive", "opposite", ""]
    lines = [_line(outcome) for outcome in found if everything or outcome.mark != "pass"]
    judged = {outcome.row.name for outcome in found if outcome.row.judged}
    left = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
    first = (
        f"{len(judged)} published rows; {share_right(found):.1%} of them get their verdict in {WANTED:.0%} of sessions "
        f"wherever a t test could; not judged: {left}"
    )
    return "\n".join([first, table(head, lines) if lines else "none is below that"])


def _line(outcome: Outcome) -> list[str]:
    (base, patched), noise = outcome.row.means, max(outcome.row.spreads)
    figures = [f"{patched / base - 1:+.1%}", f"{noise:.1%}", f"{outcome.share:.0%}", outcome.row.expected.value]
    shares = (outcome.right, outcome.verdicts[StatisticalVerdict.INCONCLUSIVE], outcome.opposite)
    return [outcome.row.name, *figures, *(f"{share:.1%}" for share in shares), outcome.mark]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statistics.published", description="published rows, simulated"
    )
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--seeds", type=int, default=200, help="sessions of each row")
    parser.add_argument("--min-effect", type=float, default=0.01)
    parser.add_argument("--all", action="store_true", help="show every row, not only those with errors")
    chosen = parser.parse_args(arguments)
    try:
        rows, others = read_cases(chosen.cases)
    except KitError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    found = outcomes(rows, seeds=chosen.seeds, min_effect=chosen.min_effect)
    print(report(found, others, everything=chosen.all))
    return 0


if __name__ == "__main__":
    sys.exit(main())
