"""What the founding cases must end as, beside what was seen: one line for each, ok or FAIL."""

from collections.abc import Callable, Iterable

from bench.replay_lines import Line, line
from bench.replay_rows import Row, Study
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
