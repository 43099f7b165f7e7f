"""Findings of older versions of a series: linked to that of the newer one, and replaced by it."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Q, QuerySet

from server.detection.lifecycle.stopping import stop_trials
from server.detection.models import Finding
from server.sources.models import Series, SeriesState

# What was told to people, or decided by them, stays until there is a newer word to put in its place.
_STANDING = (Finding.State.REPORTED, Finding.State.ACCEPTED, Finding.State.FIXED)
_OPEN = (Finding.State.CANDIDATE, Finding.State.CONFIRMED, Finding.State.BISECTING)
# One that is being bisected may have been told before: its search ends first, and shows where it was.
_UNTOLD = (Finding.State.CANDIDATE, Finding.State.CONFIRMED)
# Versions of one series; a longer chain is a loop or a joke.
_MOST_VERSIONS = 100


def link_to_previous(finding: Finding) -> None:
    """Set `previous` to the finding of the newest older version that has one."""
    if finding.series is None or finding.previous_id is not None:
        return
    older = next(_findings_before(finding.series), None)
    if older is not None:
        finding.previous = older
        Finding.objects.filter(pk=finding.pk).update(previous=older)


def supersede_older(finding: Finding) -> int:
    """End the findings of all older versions: this one stands in their place. Returns how many."""
    if finding.series is None:
        return 0
    reason = f"version {finding.series.numeral} is judged: finding {finding.pk}"
    return sum(_supersede(older, reason) for older in _findings_before(finding.series))


def supersede_of_series(*, since: datetime | None = None) -> int:
    """For the sweep: findings of series that a newer version replaced, before anybody was told; returns how many.

    Only where one of the two became so `since` then, if it is given: what says nothing stays confirmed for ever.
    """
    untold = Finding.objects.filter(state__in=_UNTOLD, series__state=SeriesState.SUPERSEDED)
    rows = _moved(untold, "series", since).select_related("series")
    return sum(_supersede(finding, finding.series.reason if finding.series else "") for finding in rows)


def awaiting_replacement(most: int, *, since: datetime | None = None) -> list[Finding]:
    """Confirmed findings of newer versions beside which an older version's finding still stands."""
    judged = Finding.objects.filter(state__in=Finding.STANDING, previous__state__in=[*_STANDING, *_OPEN])
    return list(_moved(judged, "previous", since).select_related("series").order_by("pk")[:most])


def _moved(rows: QuerySet[Finding], other: str, since: datetime | None) -> QuerySet[Finding]:
    """Those of which the finding or its `other` came into its state since then: each by an index of its own."""
    if since is None:
        return rows
    itself = Finding.objects.filter(state_since__gte=since).order_by().values("pk")
    beside = Finding.objects.filter(**{f"{other}__state_since__gte": since}).order_by().values("pk")
    return rows.filter(pk__in=itself.union(beside))


def _supersede(finding: Finding, reason: str) -> bool:
    if Finding.State.SUPERSEDED not in Finding.NEXT.get(finding.state, frozenset()):
        return False
    if not finding.advance(Finding.State.SUPERSEDED, reason or "a newer version has replaced the series"):
        return False
    stop_trials(finding, f"finding {finding.pk} is superseded")
    return True


def _findings_before(series: Series) -> Iterator[Finding]:
    """Those of the older versions, the newest first."""
    seen, row = {series.pk}, [series.pk]
    for _ in range(_MOST_VERSIONS):
        older = (
            Series.objects.filter(Q(superseded_by__in=row)).exclude(pk__in=seen).order_by("-version", "-minor", "-pk")
        )
        row = list(older.values_list("pk", flat=True))
        if not row:
            return
        seen.update(row)
        yield from Finding.objects.filter(series__in=row).select_related("series").order_by("-series__version", "-pk")
