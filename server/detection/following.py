"""What follows as soon as a finding is suspected: its explanation, questions about machines, checks."""

from server.detection.explaining import explain_finding
from server.detection.lifecycle.checking import begin_checks
from server.detection.models import Finding
from server.detection.noise.questions import ask_about_disagreements


def follow_up(finding: Finding) -> None:
    """Take up a new candidate whose vector is written; the checks confirm it, at once where there is nothing to check.

    Runs in the caller's transaction.
    """
    explain_finding(finding)
    ask_about_disagreements(finding)
    begin_checks(finding)
