"""What a reader does after the answer: how far it came, which commit made it, and how to run it again."""

from dataclasses import dataclass
from typing import Literal

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from server.detection.findings.table import CaseRow
from server.detection.models import Finding, FindingState
from server.reports.progress import series_progress
from server.reports.stages import SeriesRows, Stage, report_stage
from server.sources.models import Series, SeriesState


@dataclass(frozen=True, slots=True)
class Way:
    """One line. `tone` is "wrong" only where a person has to mend something; waiting is nothing wrong."""

    tone: Literal["", "going", "wrong"]
    word: str
    text: str


def way_of(series: Series, finding: Finding | None) -> Way:
    """`finding` was read with its report and delivery: then there is no query."""
    if finding is not None:
        return _of_finding(series, finding)
    if series.state == SeriesState.HELD:
        # Who may approve it is told beside the button.
        word = "waiting for approval" if series.checked_at else "senders are being checked"
        return Way("", word, "nothing is built before")
    progress = series_progress(series)
    if progress.state == "failed":
        return Way("wrong", "failed", progress.reason)
    tone: Literal["", "going"] = "going" if progress.state == "running" else ""
    return Way(tone, progress.state, progress.reason)


def _of_finding(series: Series, finding: Finding) -> Way:
    if finding.state == FindingState.INVALID:
        return Way("wrong", "withdrawn", finding.reason)
    if finding.state == FindingState.CANDIDATE:
        return Way("going", "being checked", finding.reason or FindingState.CANDIDATE.label)
    judged = Stage("verdict", "done", finding.headline, finding.created_at, finding.created_at)
    rows = SeriesRows(series, 0, (), (), {}, (), {}, {}, {}, finding)
    stage = report_stage(rows, judged)
    if stage.state == "failed":
        return Way("wrong", "judged", f"reply failed: {stage.detail}")
    if finding.state == FindingState.BISECTING:
        return Way("going", "judged", FindingState.BISECTING.label)
    return Way("", "judged", f"reply: {stage.detail}" if stage.detail else "")


@dataclass(frozen=True, slots=True)
class Again:
    """`command` is to be copied into a shell, `document` the address that it reads."""

    name: str
    command: str
    document: str


def run_again(row: CaseRow | None, address: str, number: int) -> Again | None:
    """None where there is no case, or one whose name has no address."""
    if row is None:
        return None
    try:
        path = reverse(address, args=[number, row.benchmark, row.case])
    except NoReverseMatch:
        return None
    document = f"{settings.SITE_URL.rstrip('/')}{path}"
    return Again(f"{row.benchmark}/{row.case}", f"tidemark-agent reproduce {document}", path)
