"""A finding whose checks are passed is confirmed: its revision is looked for, and reports may speak of it."""

from server.core.tasks import enqueue
from server.detection.bisecting.beginning import begin
from server.detection.heads.joining import join_same_change
from server.detection.heads.releasing import release_others
from server.detection.lifecycle.superseding import link_to_previous, supersede_older
from server.detection.models import Finding
from server.sources.models import SeriesState


def confirm(finding: Finding, reason: str, *, actor: str = "") -> bool:
    """CANDIDATE -> CONFIRMED, and on to BISECTING where there is something to look for.

    Runs in the transaction of the caller, who holds the finding. False, and nothing done, if it is no candidate any
    more. Nobody looks for the revision in a series that a newer version has replaced.
    """
    if finding.state != Finding.State.CANDIDATE or not finding.advance(Finding.State.CONFIRMED, reason, actor=actor):
        return False
    link_to_previous(finding)
    supersede_older(finding)
    if finding.series is None or finding.series.state != SeriesState.SUPERSEDED:
        begin(finding)
        if not join_same_change(finding):
            release_others(finding)
    enqueue("reports.sweep")
    return True
