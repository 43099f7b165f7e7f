"""A newer version of a series replaces the older ones."""

from django.db.models import Q, QuerySet

from server.sources.models import Series

State = Series.State
_LIVING = (State.INCOMPLETE, State.HELD, State.READY, State.APPLIED)
# Only a version that is all there replaces another: half of v2 must not cancel v1.
_COMPLETE = (State.HELD, State.READY, State.APPLIED)


def supersede(series: Series) -> None:
    """Mark older versions of `series` as replaced by it, or `series` itself when a newer one came first."""
    newer = _versions_of_same(series).filter(version__gt=series.version, state__in=_COMPLETE).order_by("-version", "pk")
    found = next((row for row in newer if _may_replace(row, series)), None)
    if found is not None and series.state in _LIVING:
        _replace(series, found)
        return
    if series.state not in _COMPLETE:
        return
    for older in _versions_of_same(series).filter(version__lt=series.version, state__in=_LIVING):
        if _may_replace(series, older):
            _replace(older, series)


def _versions_of_same(series: Series) -> QuerySet[Series]:
    """By change-id, else by author and subject; prefixes and versions are no part of a stored subject."""
    same = Q(author_address__iexact=series.author_address, subject__iexact=series.subject)
    if series.change_id:
        same = Q(change_id=series.change_id) | (same & Q(change_id=""))
    return Series.objects.filter(same).exclude(pk=series.pk)


def _may_replace(newer: Series, older: Series) -> bool:
    """A stranger who copies a change-id must not cancel somebody else's series before a person has approved it."""
    return newer.state != State.HELD or newer.author_address.lower() == older.author_address.lower()


def _replace(older: Series, newer: Series) -> None:
    older.advance(State.SUPERSEDED, f"replaced by v{newer.version}", superseded_by=newer)
