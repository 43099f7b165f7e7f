"""Series for those who ask: finding one, all that is known of it as JSON, letting a held one run."""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Func, Max, Prefetch, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.sources.applying.application import series_to_apply
from server.sources.mail.postings import REROLL_QUIET
from server.sources.messages.storage import lock_mail
from server.sources.models import ChangedPath, HeadMove, Message, Patch, Series, Thread
from server.sources.series.formation import group_stale
from server.sources.supersession import deleted_mails, is_replaced_for_good, replaced_of_others, supersede
from server.sources.trust.series_check import series_to_check, strangers_wait


def series_of(message: Message) -> "QuerySet[Series]":
    """The series that hold this mail, oldest first."""
    of_patches = list(Patch.objects.filter(message=message).values_list("series", flat=True))
    return Series.objects.filter(Q(pk__in=of_patches) | Q(cover=message)).order_by("pk")


# So many are read at once: memory stays flat, however many there are.
_AT_A_TIME = 50
_OF_OLDER = ("root_message_id", "superseded_by")


def all_series_json(wanted: QuerySet[Series] | None = None) -> Iterator[dict[str, Any]]:
    """The objects (docs/series.md) of all series, or the `wanted`, the oldest first; read through a database cursor."""
    rows = Series.objects.all() if wanted is None else wanted
    keys = rows.order_by("received_at", "pk").values_list("pk", flat=True).iterator(chunk_size=2000)
    while some := list(islice(keys, _AT_A_TIME)):
        yield from _documents(some)


def holding(message_id: str) -> QuerySet[Series]:
    """The series that hold the mail `message_id`, with or without its angle brackets."""
    name = message_id.strip().strip("<>")
    # Three questions, each with an index of its own: one with OR over all of them would read every mail.
    named = (
        Series.objects.filter(root_message_id=name).order_by().values("pk"),
        Series.objects.filter(cover__message_id=name).order_by().values("pk"),
        Patch.objects.filter(message__message_id=name).order_by().values("series"),
    )
    return Series.objects.filter(pk__in=named[0].union(*named[1:]))


def touching(prefix: str) -> QuerySet[Patch]:
    """Patches that change a file whose path, old or new, begins so."""
    rows = Patch.objects.filter(message__changed_paths__beginning__startswith=prefix[: ChangedPath.LONGEST])
    if len(prefix) <= ChangedPath.LONGEST:
        return rows
    lines = Func(F("message__paths"), Value("\n"), function="array_to_string", output_field=TextField())
    whole = rows.annotate(lines=Concat(Value("\n"), lines, output_field=TextField()))
    return whole.filter(lines__contains=f"\n{prefix}")


def _documents(keys: list[int]) -> list[dict[str, Any]]:
    mails = Message.objects.defer(*Message.LONG)
    patches = Patch.objects.order_by("index").prefetch_related(Prefetch("message", mails))
    rows = Series.objects.filter(pk__in=keys).select_related("mailing_list", "base__tree", "head", "superseded_by")
    rows = rows.prefetch_related(
        Prefetch("patches", patches),
        Prefetch("cover", mails),
        Prefetch("supersedes", Series.objects.only(*_OF_OLDER).order_by("version", "minor", "submitted_at", "pk")),
    )
    found = {row.pk: row for row in rows}
    steps: dict[int, list[Transition]] = {pk: [] for pk in found}
    for step in Transition.objects.filter(subject="series", subject_id__in=keys).order_by("id"):
        steps[step.subject_id].append(step)
    branches = _branches(row.base_id for row in found.values() if row.base_id)
    return [_document(found[pk], steps[pk], branches) for pk in keys if pk in found]


def _branches(bases: Iterable[int]) -> dict[int, str]:
    """The branch that each of these revisions was the head of; none for one between two polls."""
    moves = HeadMove.objects.filter(after__in=list(bases)).select_related("branch").order_by("-id")
    return {move.after_id: move.branch.name for move in moves if move.after_id}


def _document(series: Series, steps: list[Transition], branches: dict[int, str]) -> dict[str, Any]:
    patches = list(series.patches.all())
    newer = series.superseded_by
    return {
        "message_id": series.first_message_id,
        "subject": series.subject,
        "version": series.version,
        "minor": series.minor,
        "total": series.total,
        "received": _time(series.received_at),
        # Who forgot a patch sends `[PATCH 3/2]` after them: it stands for none of the announced ones.
        "complete": sum(patch.index <= series.total for patch in patches) >= series.total,
        "author": _person(series.author_name, series.author_address),
        "submitted": _time(series.submitted_at),
        "patches": [_patch(patch) for patch in patches],
        "base_commit": series.base_commit or None,
        "change_id": series.change_id or None,
        "prerequisites": list(series.prerequisites),
        "supersedes": [older.first_message_id for older in series.supersedes.all()],
        "superseded_by": newer.first_message_id if newer else None,
        "state": series.state,
        "reason": series.reason,
        "reason_code": series.reason_code,
        "trailers": list(series.trailers),
        "transitions": [
            {"state": s.after, "reason": s.reason, "reason_code": s.reason_code, "at": _time(s.at)} for s in steps
        ],
        "base": _base(series, branches),
        "head": series.head.sha if series.head else None,
        "trust": _trust(series, patches),
        "benchmarks": list(series.benchmarks),
        "list": series.mailing_list.name,
        "rfc": series.rfc,
        "resend": series.resend,
        "tags": list(series.tags),
    }


def _patch(patch: Patch) -> dict[str, Any]:
    mail = patch.message
    return {
        "message_id": mail.message_id,
        "index": patch.index,
        "subject": patch.subject,
        "author": _person(mail.author_name, mail.author_address),
        "diffstat": {"files": mail.files, "insertions": mail.insertions, "deletions": mail.deletions},
        "trailers": list(patch.trailers),
    }


def _base(series: Series, branches: dict[int, str]) -> dict[str, Any] | None:
    if series.base is None:
        return None
    return {
        "commit": series.base.sha,
        "tree": series.base.tree.name,
        "branch": branches.get(series.base.pk),
        "how": series.base_how,
        "certain": series.base_certain,
    }


def _trust(series: Series, patches: list[Patch]) -> dict[str, Any]:
    """Whether it waits, and per sender whether all mails are proved: null where one is not checked yet."""
    senders: dict[str, list[Message]] = {}
    for mail in [*([series.cover] if series.cover else []), *(patch.message for patch in patches)]:
        senders.setdefault(mail.sender_address.lower(), []).append(mail)
    return {
        "held": series.state == Series.State.HELD,
        "checked": _time(series.checked_at) if series.checked_at else None,
        "senders": [
            {"address": address, "authentic": _all_proved(mails), "how": _telling(mails).authenticity}
            for address, mails in sorted(senders.items())
        ],
    }


def _all_proved(mails: list[Message]) -> bool | None:
    words = {mail.authentic for mail in mails}
    return False if False in words else None if None in words else True


def _telling(mails: list[Message]) -> Message:
    """The mail that decides: the first that is not proved, where there is one."""
    return next((mail for mail in mails if not mail.authentic), mails[0])


def _person(name: str, address: str) -> str:
    return f"{name} <{address}>" if name else f"<{address}>"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_PROOFS = {True: "proved", False: "not proved: anybody may have written it", None: "not checked"}


def line_of(series: Series) -> str:
    """Which one it is, among others that hold the same Message-ID."""
    author = f"{series.author_name} <{series.author_address}>".lstrip()
    return f"series {series.pk}: {series}, of {author}, {Series.State(series.state).label}"


def lines_to_read(series: Series) -> Iterator[str]:
    """All mails of `series` with their senders, whatever its author is called, and what else its approval does."""
    yield line_of(series)
    yield f"  {series.reason}"
    if series.cover:
        yield f"  letter {_mail(series.cover)}"
    unread = [f"message__{name}" for name in Message.LONG]
    for patch in series.patches.select_related("message").defer(*unread).order_by("index"):
        beyond = "" if patch.index <= series.total else f" (beyond the {series.total} that are announced)"
        change = f"+{patch.message.insertions} -{patch.message.deletions}"
        yield f"  patch {patch.index}/{series.total}{beyond} {change} {patch.subject}: {_mail(patch.message)}"
    for other in replaced_of_others(series):
        yield f"  ends {line_of(other)}"


def _mail(message: Message) -> str:
    return f"<{message.message_id}> (message {message.pk}) from {message.sender_address}, {_PROOFS[message.authentic]}"


State = Series.State
_LET_RUN = frozenset({State.READY, State.APPLIED})
# A sweep must be over before the next one but two.
_THREADS_AT_ONCE = 500
# More than numbers of rows have; PostgreSQL refuses larger ones.
_MOST_DIGITS = 18
_GROUP_SECONDS = 120.0


@transaction.atomic
def approve_series(*, series: Series, reason: str, seen: str | None = None, actor: str = "") -> bool:
    """A person lets a held series run, a refused one try again, or one run that something unproved has replaced.

    `reason` names who and why; `seen` is the `posting_mark` of what he has read, None where he takes what is there.
    False, and nothing happens, where a person let just these mails run already: `not_held` says so to people.

    DomainError where it is in another state, is not whole, holds other mails than he has read, or some that the archive
    deleted.
    """
    # A version that becomes complete at this moment must see this one, or be seen by it.
    lock_mail()
    if not may_be_approved(series):
        if series.approved_at and series.state in _LET_RUN and seen == posting_mark(series):
            return False
        raise not_held(series)
    # A patch beyond the announced ones stands for none of them.
    if series.patches.filter(index__lte=series.total).count() < series.total:
        raise DomainError("not-held", f"series {series.pk} is not whole")
    if seen is not None and seen != posting_mark(series):
        raise DomainError("posting-changed", "its mails are not the ones that you have read: others came in between")
    if gone := deleted_mails(series):
        raise DomainError("mail-deleted", f"series {series.pk} cannot run: the archive deleted <{gone[0]}>")
    if not series.advance(State.READY, Because.APPROVED(reason), actor=actor, failures=0, approved_at=clock.now()):
        series.refresh_from_db()
        raise not_held(series)
    supersede(series)
    if series.state == State.READY:
        enqueue("sources.apply_series", series.pk)
    return True


def posting_mark(series: Series) -> str:
    """What a series holds just now, its letter and its patches: another text as soon as one of them is another mail."""
    patches = series.patches.order_by("index").values_list("index", "message_id", "message__blob")
    return hashlib.sha256(repr([series.cover_id, *patches]).encode()).hexdigest()[:32]


def may_be_approved(series: Series) -> bool:
    """Whether its state lets a person approve it."""
    if series.state == State.SUPERSEDED:
        return not is_replaced_for_good(series)
    return series.state in {State.HELD, State.REFUSED}


def not_held(series: Series) -> DomainError:
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
    _wake_quiet()
    group_stale(limit=_THREADS_AT_ONCE, seconds=_GROUP_SECONDS)
    for pk in series_to_check():
        enqueue("sources.check_series", pk)
    if strangers_wait():
        enqueue("sources.check_strangers")
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
