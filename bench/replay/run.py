"""What the founding cases must end as, beside what was seen: one line for each, ok or FAIL."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.kit import KitError
from bench.replay.cases import CASES, read_studies
from bench.replay.report import Line, Rate, expected_table, line, rates_table
from bench.replay.tries import NAME as WALKED
from bench.replay.tries import failures, false_alarms, recomputed, splits, walked
from demo.lab.replay.player import Player, measure_noise, playing
from demo.lab.replay.studies import UNPUBLISHED, Row, Study
from server.detection.models import Comparison, Finding, FindingVerdict
from server.sources.models import Series


def verdicts_of(finding: Finding) -> dict[str, str]:
    rows = FindingVerdict.objects.filter(finding=finding)
    return dict(rows.values_list("uarch__name", "verdict"))


def comparison_of(series: Series, row: Row) -> Comparison | None:
    rows = Comparison.objects.filter(
        session__series=series, case__name=row.case, case__benchmark__name=row.benchmark, metric__name=row.metric
    )
    machine = {"session__machine__uarch__name": row.uarch, "core_type__name": row.core_type}
    return rows.filter(**machine).select_related("session").first()


def of_rows(series: Series, study: Study) -> Line:
    """How many published rows got the verdict that their thread gave them."""
    judged = [row for row in study.rows if row.expected in {"improved", "regressed", "unchanged"}]
    found = [(row, comparison_of(series, row)) for row in judged]
    wrong = [row for row, seen in found if seen is None or seen.verdict != row.expected]
    named = f" (not {', '.join(f'{row.uarch} {row.case} {row.metric}' for row in wrong[:2])})" if wrong else ""
    seen = f"{len(judged) - len(wrong)} of {len(judged)}{named}"
    opposite = [
        row for row, seen in found if seen is not None and {row.expected, seen.verdict} == {"improved", "regressed"}
    ]
    # Rows whose noise hides them may be inconclusive, none may be called the other way.
    return Line("  rows with their published verdict", f"{len(judged)}, none opposite", seen, not opposite)


def folio_copy(finding: Finding | None, series: Series, study: Study) -> Iterable[Line]:
    yield line("folio-copy", "split", finding.kind if finding else "no finding")
    if finding is None:
        return
    verdicts = verdicts_of(finding)
    yield line("  zen3", "regressed", verdicts.get("zen3", "missing"))
    yield line("  zen5", "improved", verdicts.get("zen5", "missing"))
    texts = [str(row.get("text", "")) for row in finding.explanations]
    named = [text for text in texts if "fsrm" in text and "erms" in text]
    seen = named[0] if named else "; ".join(texts) or "none"
    yield Line("  explanation", "names fsrm and erms", seen, bool(named))
    yield line("  findings", "1", str(Finding.objects.filter(series=series).count()))
    yield _claimed(finding)
    yield of_rows(series, study)


def clear_pages(finding: Finding | None, series: Series, study: Study) -> Iterable[Line]:
    yield line("clear-pages", "improved", finding.kind if finding else "no finding")
    for row in study.rows:
        if row.is_counter:
            continue
        seen = comparison_of(series, row)
        told = seen.verdict if seen else "missing"
        mde = seen.mde if seen else None
        with_mde = f" (would have seen {100 * mde:.1f} %)" if told == "unchanged" and mde is not None else ""
        expected = row.expected + (" (with its MDE)" if row.expected == "unchanged" else "")
        right = told == row.expected and (told != "unchanged" or mde is not None)
        yield Line(f"  {row.uarch} {row.case}", expected, told + with_mde, right)
    if finding is not None:
        counters = [str(row.get("counter", "")) for row in finding.counters]
        right = any("cache-misses" in name for name in counters)
        yield Line("  counters that moved", "cache-misses among them", ", ".join(counters) or "none", right)


def arm64(finding: Finding | None, series: Series, study: Study) -> Iterable[Line]:
    yield line("arm64 clear_pages", "improved", finding.kind if finding else "no finding")
    if finding is not None:
        yield line("  emulator in the finding", "no", "yes" if "virtual" in verdicts_of(finding) else "no")
        yield line("  finding is from virtual machines", "no", "yes" if finding.virtual else "no")
    for row in study.rows:
        if row.uarch == "cix-p1":
            seen = comparison_of(series, row)
            yield line(f"  {row.core_type}", row.expected, seen.verdict if seen else "missing")


def _claimed(finding: Finding) -> Line:
    """Its checks are over: it may be told to people."""
    standing = finding.state in Finding.STANDING
    return Line("  state", "claimed", finding.state + (f": {finding.reason}" if not standing else ""), standing)


Expectation = Callable[[Finding | None, Series, Study], Iterable[Line]]
EXPECTED: dict[str, Expectation] = {
    "folio-copy-batch": folio_copy,
    "clear-pages-sequential": clear_pages,
    "arm64-clear-pages": arm64,
}


_NULL = "nothing"


def main(*arguments: str) -> None:
    options = _parser().parse_args(arguments)
    # Each step of each session is a line of the service's log.
    logging.disable(logging.CRITICAL if options.quiet else logging.WARNING)
    try:
        studies = read_studies(options.cases, unpublished=options.spread)
    except KitError as error:
        sys.exit(f"bench: {error}")
    wanted = [studies[name] for name in (*EXPECTED, WALKED)][: 1 if options.no_cases else None]
    with playing([*wanted, studies["folio-copy-batch"].without_effect(_NULL)], seed=options.seed) as player:
        began = time.monotonic()
        measure_noise(player, options.noise)
        print(f"{options.noise} nights of A/A trials: {time.monotonic() - began:.0f} s", flush=True)
        lines = [] if options.no_cases else _cases(player, wanted)
        rates = _rates(player, options.rates) if options.rates else []
        lines += [failures(player), recomputed()]
        print(expected_table(lines[-2:]))
    sys.exit(0 if all(each.right for each in lines) and all(rate.holds for rate in rates) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread", type=float, default=UNPUBLISHED, help="of rows without a published one")
    parser.add_argument("--noise", type=int, default=20, help="nights of A/A trials before")
    parser.add_argument("--rates", type=int, default=0, help="replays without effect, and with the published one")
    parser.add_argument("--no-cases", action="store_true", help="only the rates")
    parser.add_argument("--quiet", action="store_true", help="no log of the service at all")
    return parser


def _cases(player: Player, studies: Sequence[Study]) -> list[Line]:
    lines: list[Line] = []
    for study in studies:
        began = time.monotonic()
        if study.name == WALKED:
            found = list(walked(player))
        else:
            finding = player.play(study.name)
            series = Series.objects.filter(mailing_list__name=study.name).latest("pk")
            found = list(EXPECTED[study.name](finding, series, study))
            if finding is not None:
                print(f"{study.name}: {finding.headline}")
        lines += found
        print(f"{expected_table(found)}\n({time.monotonic() - began:.1f} s)\n", flush=True)
    return lines


def _rates(player: Player, tries: int) -> list[Rate]:
    def progress(text: str) -> None:
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)

    rates = [
        false_alarms(player, _NULL, tries, progress=progress),
        splits(player, "folio-copy-batch", tries, progress=progress),
    ]
    print(f"\n{rates_table(rates)}")
    return rates
