"""A newer version of a series replaces the older ones.

Every version is linked to the next newer one that is all there, whatever order they came in. The older one also goes to
the state `superseded`, unless the newer one could be forged: whoever writes somebody's address on a mail must not
stop measurements that run.
"""

from django.db.models import Count, F, Q, QuerySet

from server.sources.mail.subjects import normalised
from server.sources.models import Message, Series

State = Series.State
_LIVING = (State.INCOMPLETE, State.HELD, State.READY, State.APPLIED, State.REFUSED)
# Half of v2 must not replace v1.
_WHOLE = (State.HELD, State.READY, State.APPLIED, State.REFUSED, State.SUPERSEDED)
_MAY_RUN = (State.READY, State.APPLIED)
# What nothing was started for yet.
_IDLE = (State.INCOMPLETE, State.HELD, State.REFUSED)
# A robot that posts one subject every day has thousands of "versions". Real ones have their next within these.
_NEAREST = 10


def supersede(series: Series) -> None:
    """Link `series` with its older and newer versions, and replace what may be replaced.

    Called whenever it becomes whole or may run. The caller holds the lock of the mails. Safe to repeat.
    """
    if series.state != State.INCOMPLETE and _is_whole(series):
        for older in _older(series):
            _link(older)
    _link(series)


def _link(older: Series) -> None:
    if older.state == State.INCOMPLETE and not _has_name(older):
        return
    newer = [row for row in _newer(older) if _is_next(row, older)]
    # Somebody else's counts when somebody decided that it may run: anyone can copy a change-id.
    same_hand = [row for row in newer if _same_author(row, older)]
    strong = [row for row in newer if row.state in _MAY_RUN] + [row for row in same_hand if _is_proved(row)]
    linked = min([*strong, *same_hand], key=_place, default=None)
    if linked is None:
        return
    reason = _reason(linked, older)
    if older.state in _LIVING and (strong or older.state in _IDLE):
        older.advance(State.SUPERSEDED, reason, superseded_by=linked)
        return
    if older.state != State.SUPERSEDED:
        reason = older.reason
    if (older.superseded_by_id, older.reason) != (linked.pk, reason):
        older.note(reason, superseded_by=linked)


def _place(series: Series) -> tuple[object, ...]:
    return (series.version, series.submitted_at, series.root_message_id, series.pk)


def _newer(series: Series) -> list[Series]:
    later = Q(version__gt=series.version) | Q(version=series.version, submitted_at__gte=series.submitted_at)
    found = relatives(series).filter(later, state__in=_WHOLE).order_by("version", "submitted_at", "root_message_id")
    whole = found.annotate(there=Count("patches")).filter(there__gte=F("total"))
    return [row for row in whole[:_NEAREST] if _place(row) > _place(series)]


def _older(series: Series) -> list[Series]:
    """Those whose next version `series` could be, or whose state it could change: the nearest first."""
    earlier = Q(version__lt=series.version) | Q(version=series.version, submitted_at__lte=series.submitted_at)
    found = relatives(series).filter(earlier).order_by("-version", "-submitted_at", "-root_message_id")
    return [row for row in found[:_NEAREST] if _place(row) < _place(series)]


def relatives(series: Series) -> QuerySet[Series]:
    """Its other versions: by change-id, else by author and subject (marks are no part of a stored subject)."""
    title = normalised(series.subject)
    titles = Q(subject__iexact=title) | Q(subject__iexact=series.subject) | Q(subject__istartswith=f"{title} (v")
    same = Q(author_address__iexact=series.author_address) & titles
    if series.change_id:
        same = Q(change_id=series.change_id) | (same & Q(change_id=""))
    return Series.objects.filter(same).exclude(pk=series.pk)


def _is_next(newer: Series, older: Series) -> bool:
    """A larger version, or the same one sent again: marked so, or with the same patches to the same files."""
    if newer.version > older.version or newer.resend:
        return True
    return newer.total == older.total and _content(newer) == _content(older)


def _content(series: Series) -> list[tuple[int, str, list[str]]]:
    return list(series.patches.order_by("index").values_list("index", "subject", "paths"))


def _has_name(series: Series) -> bool:
    """Whether its subject is known: that of a patch is not the one of the series while a cover letter may come."""
    first = series.patches.filter(index=1, message__in_reply_to="", message__references=[])
    return series.cover_id is not None or first.exists()


def _is_whole(series: Series) -> bool:
    return series.patches.count() >= series.total


def _is_proved(series: Series) -> bool:
    """Whether all its mails are proved to be their senders'."""
    mails = Message.objects.filter(Q(patches__series=series) | Q(pk=series.cover_id))
    return not mails.exclude(authentic=True).exists()


def _same_author(one: Series, other: Series) -> bool:
    return one.author_address.lower() == other.author_address.lower()


def _reason(newer: Series, older: Series) -> str:
    if newer.version > older.version:
        return f"replaced by v{newer.version}"
    return f"sent again: replaced by <{newer.root_message_id}> of {newer.submitted_at:%Y-%m-%d %H:%M} UTC"
