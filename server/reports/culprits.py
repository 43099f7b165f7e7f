"""Which patch of a series made what was found, as a mail tells it: by bisection, and by the walk where there is one."""

from server.detection.bisecting.walks import Walk, walk_of
from server.detection.bisecting.words import together
from server.detection.models import Bisection, BisectionState, Finding
from server.sources.models import Series

_REGARDED = "target__case", "target__metric", "machine__uarch", "culprit"


def culprit_sentence(finding: Finding) -> str:
    """What the bisections say together; empty where there was nothing to look for, or while one is under way."""
    bisections = list(finding.bisections.select_related(*_REGARDED).order_by("machine__name"))
    if not bisections or any(bisection.state not in Bisection.FINAL for bisection in bisections):
        return ""
    # Why a person ended a search is for this site, not for a list.
    said = together([one for one in bisections if one.state != BisectionState.CANCELED])
    return f"Bisection: {said}{'' if said.endswith('.') else '.'}" if said else ""


def walk_sentences(series: Series) -> tuple[str, ...]:
    """One for each patch, then whether they add up; nothing before all of them are measured."""
    walk = walk_of(series)
    return _sentences(walk) if walk is not None and walk.done else ()


def _sentences(walk: Walk) -> tuple[str, ...]:
    return (*(f"patch {row.index} {row.sentence}" for row in walk.rows), *walk.closing)
