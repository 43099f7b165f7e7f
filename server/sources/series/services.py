"""Series for those who ask: finding one, letting a held one run, and waking up what a lost message left."""

import hashlib

from django.db import transaction
from django.db.models import Count, F, Max, Q

from server.core import clock
from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.sources.applying.application import series_to_apply
from server.sources.mail.threads import REROLL_QUIET
from server.sources.messages.joining import adopt_messages, lock_mail
from server.sources.models import Message, Series, Thread
from server.sources.series.as_json import holding
from server.sources.series.grouping import group_stale
from server.sources.series.settling import deleted_mails
from server.sources.series.superseding import is_replaced_for_good, supersede
from server.sources.trust.checking import series_to_check

State = Series.State
# A sweep must be over before the next one but two.
_THREADS_AT_ONCE = 500
# More than numbers of rows have; PostgreSQL refuses larger ones.
_MOST_DIGITS = 18
_GROUP_SECONDS = 120.0


@transaction.atomic
def approve_series(*, series: Series, reason: str, seen: str | None = None) -> None:
    """A person lets a held series run, a refused one try again, or one run that something unproved has replaced.

    `reason` names who and why; `seen` is the `posting_mark` of what he has read, None where he takes what is there.

    DomainError where it is in another state, is not whole, holds other mails than he has read, or some that the archive
    deleted.
    """
    # A version that becomes complete at this moment must see this one, or be seen by it.
    lock_mail()
    if not may_be_approved(series):
        raise _not_held(series)
    # A patch beyond the announced ones stands for none of them.
    if series.patches.filter(index__lte=series.total).count() < series.total:
        raise DomainError("not-held", f"series {series.pk} is not whole")
    if seen is not None and seen != posting_mark(series):
        raise DomainError("posting-changed", "its mails are not the ones that you have read: others came in between")
    if gone := deleted_mails(series):
        raise DomainError("mail-deleted", f"series {series.pk} cannot run: the archive deleted <{gone[0]}>")
    if not series.advance(State.READY, reason, failures=0, approved_at=clock.now()):
        series.refresh_from_db()
        raise _not_held(series)
    supersede(series)
    if series.state == State.READY:
        enqueue("sources.apply_series", series.pk)


def posting_mark(series: Series) -> str:
    """What a series holds just now, its letter and its patches: another text as soon as one of them is another mail."""
    patches = series.patches.order_by("index").values_list("index", "message_id", "message__blob")
    return hashlib.sha256(repr([series.cover_id, *patches]).encode()).hexdigest()[:32]


def may_be_approved(series: Series) -> bool:
    """Whether its state lets a person approve it."""
    if series.state == State.SUPERSEDED:
        return not is_replaced_for_good(series)
    return series.state in {State.HELD, State.REFUSED}


def _not_held(series: Series) -> DomainError:
    return DomainError("not-held", f"series {series.pk} is {State(series.state).label}, not held")


def find_series(name: str) -> list[Series]:
    """The series of that number, or all that hold the mail of that Message-ID, the newest first; never none.

    Several do where versions share a mail, and where somebody has used the Message-ID of another's.
    """
    name = name.strip()
    if name.isdecimal() and len(name) < _MOST_DIGITS:
        found = list(Series.objects.filter(pk=int(name)))
        if not found:
            raise DomainError("unknown-series", f"there is no series {int(name)}")
        return found
    found = list(holding(name).order_by("-pk"))
    if not found:
        raise DomainError("unknown-series", f"no series holds <{name.strip('<>')}>")
    return found


def sweep_series() -> None:
    """Go on where a process was killed or a message was lost: threads, senders not checked, series not applied."""
    adopt_messages()
    _wake_quiet()
    group_stale(limit=_THREADS_AT_ONCE, seconds=_GROUP_SECONDS)
    for pk in series_to_check():
        enqueue("sources.check_series", pk)
    for pk in series_to_apply():
        enqueue("sources.apply_series", pk)


def _wake_quiet() -> None:
    """Series that were whole, but whose next mails could still have been on their way, are looked at again."""
    announced = Count("patches", filter=Q(patches__index__lte=F("total")))
    counted = Series.objects.filter(state=State.INCOMPLETE).annotate(there=announced)
    whole = counted.annotate(last=Max("patches__message__sent_at")).filter(there__gte=F("total"))
    quiet = whole.filter(last__lte=clock.now() - REROLL_QUIET)
    # The few that there are, and not as a part of the next question: that would be answered by reading every mail.
    found = list(quiet.values_list("pk", flat=True))
    if found:
        threads = Message.objects.filter(patches__series__in=found).order_by().values_list("thread", flat=True)
        Thread.objects.filter(pk__in=set(threads), stale=False).update(stale=True)
