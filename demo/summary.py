"""What is printed at the end: verdicts, mail, checks, times."""

from collections.abc import Iterable, Mapping, Sequence

from demo.checks import Check
from demo.progress import clock_text
from demo.sink import Stored
from server.detection.models import Finding
from server.detection.selectors import CellView, Component, finding_vector
from server.lab.models import Trial
from server.lab.trials.costs import spent
from server.sources.models import Series


def verdict_table(series: Series) -> list[str]:
    """One line for each microarchitecture; ratios are patched / base of the case that moved most."""
    finding = getattr(series, "finding", None)
    if finding is None:
        return ["no verdict"]
    rows = [("microarchitecture", "verdict", "what was seen")]
    rows += [(part.uarch, part.verdict, _seen(part)) for part in finding_vector(finding)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows]
    return [finding.headline, "", *lines, "", "  Measured on virtual machines: not evidence."]


def _seen(part: Component) -> str:
    cell = part.cell
    if part.verdict in {"regressed", "improved", "split"} and cell is not None and cell.ratio is not None:
        return f"{cell.case} {cell.ratio:.2f}x ({_means(cell)})"
    if part.mde is not None:
        return f"would have seen {100 * part.mde:.1f} %" + (f"; {part.reason}" if part.reason else "")
    return part.reason


def _means(cell: CellView) -> str:
    if cell.base_mean is None or cell.patched_mean is None:
        return "no means"
    boots = cell.base_boots + cell.patched_boots
    return f"{cell.base_mean:.0f} -> {cell.patched_mean:.0f} {cell.unit}, {boots} boots on {cell.machine}"


def search_lines(series: Series) -> list[str]:
    """What was found to have made it, each step of the way there, and what all its trials cost."""
    finding = Finding.objects.filter(series=series).select_related("culprit").first()
    if finding is None:
        return []
    lines = [f"  culprit: {finding.culprit.subject}" if finding.culprit else f"  no culprit: {finding.reason}"]
    for search in finding.bisections.select_related("machine").order_by("pk"):
        lines.append(f"  {search.machine.name}: {search.state}; {search.reason}".rstrip("; "))
        for step in search.steps.order_by("number"):
            ratio = f" {step.ratio:.2f}x" if step.ratio is not None else ""
            where = "" if step.index is None else f" patch {step.index}"
            lines.append(f"    {step.kind}{where}: {step.answer}{ratio} {step.reason}".rstrip())
    cost = spent(list(_trials(series, finding)))
    return [*lines, f"  {cost.sessions} sessions, {cost.boots} boots, {clock_text(cost.seconds)} of machine time"]


def _trials(series: Series, finding: Finding) -> Iterable[int]:
    yield from Trial.objects.filter(series=series).values_list("pk", flat=True)
    yield from Trial.objects.filter(bisection_steps__bisection__finding=finding).values_list("pk", flat=True)
    yield from Trial.objects.filter(key__startswith=f"finding:{finding.pk}:").values_list("pk", flat=True)


def mail_lines(mails: Iterable[Stored]) -> list[str]:
    return [line for mail in mails for line in (*(f"  | {line}" for line in mail.text.splitlines()), "")]


def check_lines(checks: Sequence[Check]) -> list[str]:
    return [f"  {'ok    ' if one.ok else 'FAILED'} {one.name}: {one.detail}" for one in checks]


def time_lines(titles: Mapping[str, str], seconds: Mapping[str, float], total: float) -> list[str]:
    lines = [f"  {clock_text(seconds[name]):>6}  {title}" for name, title in titles.items() if name in seconds]
    return [*lines, f"  {clock_text(total):>6}  in all"]
