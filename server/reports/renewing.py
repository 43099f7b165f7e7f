"""A text that is older than what its finding says by now: nobody approves or sends it."""

from server.core.models import Transition
from server.detection.models import Finding
from server.reports.compose import compose
from server.reports.evidence import gather
from server.reports.models import Report, ReportState

CHANGED = "its finding says something else since it was written: the text is new, and wants to be read again"


def renew(report: Report) -> bool:
    """Write the text anew if the finding was bisected after it was written; whether another text came of it.

    A bisection names a patch, and takes back what its ends do not show again. Raises DomainError `incomplete-report`
    where nothing may be told any more.
    """
    if report.state not in (ReportState.DRAFT, ReportState.APPROVED) or not _was_bisected_since(report):
        return False
    text = compose(gather(report.finding))
    if (text.subject, text.body) == (report.subject, report.body):
        return False
    return report.note(CHANGED, subject=text.subject, body=text.body, released=False)


def _was_bisected_since(report: Report) -> bool:
    return Transition.objects.filter(
        subject="finding", subject_id=report.finding_id, before=Finding.State.BISECTING, at__gt=report.created_at
    ).exists()
