"""Why a change shows on some machines and not on others, as a mail tells it."""

from server.detection.models import Finding
from server.stats.explanation import Outcome

_SEPARATED = (Outcome.ONE, Outcome.SEVERAL)
# What chance finds more often than not is for the page, where all facts stand beside it.
_MOST_CHANCE = 0.5


def explanation_sentence(finding: Finding) -> str:
    """The first explanation that chance finds in half of all cases at most; empty without one."""
    for row in finding.explanations:
        if row["outcome"] in _SEPARATED and row["chance"] is not None and row["chance"] <= _MOST_CHANCE:
            text = str(row["text"])
            return f"Why here and not there ({row['metric']} of {row['case']}): {text[:1].lower()}{text[1:]}"
    return ""
