"""A newer version of a series replaces the older ones; what becomes of one that is all there."""

from collections.abc import Iterable
from functools import cmp_to_key
from hashlib import sha256
from typing import Any

import structlog
from django.db.models import Count, F, Q, QuerySet

from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.sources.mail.parser import few_needs
from server.sources.mail.postings import normalised, parse_subject
from server.sources.models import Message, Open, Patch, Series

# A newer version of a series replaces the older ones.
#
# Every version is linked to the next newer one that is all there, whatever order they came in. Which of two is newer
# tells their number, or when they were sent where only one of them is an RFC: the count begins anew then. The older
# one also goes to the state `superseded`, unless the newer one could be forged: whoever writes somebody's address on
# a mail must not stop measurements that run, nor versions that may still turn out to be proved. Another author's
# replaces it after a person's approval only, and so does one that anybody could have made of an older mail of the
# same author.

State = Series.State
_LIVING = (State.INCOMPLETE, State.HELD, State.READY, State.APPLIED, State.REFUSED)
# Half of v2 must not replace v1.
_WHOLE = (State.HELD, State.READY, State.APPLIED, State.REFUSED, State.SUPERSEDED)
_MAY_RUN = (State.READY, State.APPLIED)
# A robot that posts one subject every day has thousands of "versions". Real ones have their next within these.
_NEAREST = 10
_LONGEST_WAY = 100
_MAILS_AT_ONCE = 10


def supersede(series: Series) -> None:
    """Link `series` with its older and newer versions, and replace what may be replaced.

    Called whenever it becomes whole or may run. The caller holds the lock of the mails. Safe to repeat.
    """
    known = _Compared()
    if series.state != State.INCOMPLETE and _is_whole(series):
        older = _older(series)
        known.read([series, *older])
        for row in older:
            if _may_change(row, series, known):
                _link(row, known)
    _link(series, known)


def _may_change(older: Series, series: Series, known: "_Compared") -> bool:
    """Whether `series` can be what replaces `older`; hundreds of one title may lie beside it, each by itself."""
    if not known.is_next(series, older):
        return False
    link = older.superseded_by
    if link is None or _compared(series, link) <= 0:
        return True
    may_end = series.state in _MAY_RUN or known.is_proved(series)
    return older.state in _LIVING and may_end and not known.may_be_replayed(series, older)


def replaced_of_others(series: Series) -> list[Series]:
    """Series of other authors that end when a person lets this one run, the nearest first; no more than a few."""
    found = [older for older in _older(series) if older.state in _LIVING and not _same_author(series, older)]
    known = _Compared()
    known.read([series, *found])
    return [older for older in found if known.is_next(series, older)]


def _link(older: Series, known: "_Compared") -> None:
    if older.state == State.INCOMPLETE and not _has_name(older):
        return
    found = _newer(older)
    known.read([older, *found])
    newer = [row for row in found if known.is_next(row, older)]
    same_hand = [row for row in newer if _same_author(row, older)]
    # Somebody else's counts when a person let it run: anyone can copy a change-id, a trusted author, too.
    strong = [row for row in newer if row.state in _MAY_RUN and row.approved_at]
    strong += [
        row
        for row in same_hand
        if (row.state in _MAY_RUN or known.is_proved(row)) and not known.may_be_replayed(row, older)
    ]
    linked = min([*strong, *same_hand], key=cmp_to_key(_compared), default=None)
    if linked is None or _leads_to(linked, older):
        return
    reason = _reason(linked, older, is_reroll=known.is_reroll(linked, older))
    if older.state in _LIVING and (strong or _is_unproved(older)):
        older.advance(State.SUPERSEDED, reason, superseded_by=linked)
        return
    if older.state != State.SUPERSEDED:
        reason = older.said
    if (older.superseded_by_id, older.reason) != (linked.pk, reason):
        older.note(reason, superseded_by=linked)


def _place(series: Series) -> tuple[object, ...]:
    return (series.number, series.submitted_at, series.root_message_id, series.pk)


def _compared(one: Series, other: Series) -> int:
    """Below 0 where `one` is the older one."""
    mine, theirs = (_place(one), _place(other))
    if one.rfc != other.rfc:
        # v1 may come after RFC v5: the number counts only where both were sent in one second.
        mine, theirs = ((series.submitted_at, *_place(series)) for series in (one, other))
    return (mine > theirs) - (mine < theirs)


def _newer(series: Series) -> list[Series]:
    number = Q(version=series.version, minor=series.minor, submitted_at__gte=series.submitted_at)
    number |= Q(version=series.version, minor__gt=series.minor) | Q(version__gt=series.version)
    counted = relatives(series).filter(state__in=_WHOLE).annotate(there=Count("patches")).filter(there__gte=F("total"))
    alike = counted.filter(number, rfc=series.rfc).order_by("version", "minor", "submitted_at", "root_message_id")
    other = counted.filter(submitted_at__gte=series.submitted_at).exclude(rfc=series.rfc).order_by("submitted_at", "pk")
    return [row for row in _nearest(alike, other) if _compared(row, series) > 0]


def _older(series: Series) -> list[Series]:
    """Those whose next version `series` could be, or whose state it could change: the nearest first."""
    number = Q(version=series.version, minor=series.minor, submitted_at__lte=series.submitted_at)
    number |= Q(version=series.version, minor__lt=series.minor) | Q(version__lt=series.version)
    found = relatives(series)
    alike = found.filter(number, rfc=series.rfc).order_by("-version", "-minor", "-submitted_at", "-root_message_id")
    other = found.filter(submitted_at__lte=series.submitted_at).exclude(rfc=series.rfc).order_by("-submitted_at", "-pk")
    older = [row for row in _nearest(alike, other) if _compared(row, series) < 0]
    return sorted(older, key=cmp_to_key(_compared), reverse=True)


def _nearest(*ordered: QuerySet[Series]) -> list[Series]:
    """Of those that run, and of the rest: anyone can write any number of versions that never will."""
    ordered = tuple(rows.select_related("superseded_by") for rows in ordered)
    found = [row for rows in ordered for row in [*rows.filter(state__in=_MAY_RUN)[:_NEAREST], *rows[:_NEAREST]]]
    return list(dict.fromkeys(found))


def relatives(series: Series) -> QuerySet[Series]:
    """Its other versions: by change-id, else by author and subject (marks are no part of a stored subject).

    Where only one of two has a cover letter, the subject of the other is the title of its first patch.
    """
    hand = Q(author_address__iexact=series.author_address)
    same = hand & _titled(series.subject)
    first = series.patches.filter(index=1).only("subject").first()
    if series.cover_id is None:
        begun = Patch.objects.filter(_titled(series.subject), index=1, series__cover__isnull=False)
        same |= Q(pk__in=begun.filter(series__author_address__iexact=series.author_address).values("series"))
    elif first is not None:
        same |= hand & Q(cover=None) & _titled(first.subject)
    if series.change_id:
        same = Q(change_id=series.change_id) | (same & Q(change_id=""))
    return Series.objects.filter(same).exclude(pk=series.pk)


def _titled(subject: str) -> Q:
    title = normalised(subject)
    return Q(subject__iexact=title) | Q(subject__iexact=subject) | Q(subject__istartswith=f"{title} (v")


class _Compared:
    """Several series beside each other, of which is read once, and for all together, what tells one from another."""

    def __init__(self) -> None:
        self._mails: dict[int, set[int]] = {}
        self._outline: dict[int, list[tuple[int, str, int]]] = {}
        self._paths: dict[int, list[bytes]] = {}
        self._proved: dict[int, bool] = {}
        # Whether a mail's subject is not signed, and whether it is known to have been another.
        self._unsigned: dict[int, tuple[bool, bool]] = {}

    def read(self, rows: Iterable[Series]) -> None:
        """Patches and proofs of those that are not known yet."""
        new = {row.pk: row for row in rows if row.pk not in self._mails}
        of_new = Patch.objects.filter(series__in=new).order_by("index")
        for pk in new:
            self._mails[pk], self._outline[pk], self._proved[pk] = set(), [], True
        columns = ("series_id", "message_id", "index", "subject", "message__files", "message__authentic")
        for pk, mail, index, subject, files, authentic in of_new.values_list(*columns):
            self._mails[pk].add(mail)
            self._outline[pk].append((index, subject, files))
            self._proved[pk] &= authentic is True
        of_letters = Series.objects.filter(pk__in=new, cover__isnull=False).exclude(cover__authentic=True)
        self._proved |= dict.fromkeys(of_letters.values_list("pk", flat=True), False)

    def is_next(self, newer: Series, older: Series) -> bool:
        """A larger version, or the same one sent again: marked so, with the same patches to the same files, or in part.

        What was an RFC is followed by whatever is none.
        """
        if newer.number > older.number or newer.resend or (older.rfc and not newer.rfc):
            return True
        return self.is_reroll(newer, older) or self._has_content_of(newer, older)

    def is_reroll(self, newer: Series, older: Series) -> bool:
        """A new posting of some patches holds the mails of the others."""
        return not self._mails[newer.pk].isdisjoint(self._mails[older.pk])

    def is_proved(self, series: Series) -> bool:
        """Whether all its mails are proved to be their senders'."""
        return self._proved[series.pk]

    def may_be_replayed(self, newer: Series, older: Series) -> bool:
        """Whether the number of `newer` may be somebody else's word, though its author is proved.

        Some signatures leave the subject out: then an old mail can be posted again as any version. What is signed of
        it still tells: its date, where that is signed, and its Message-ID, by which it is known under its own subject.
        """
        if newer.pk not in self._unsigned:
            found = _unsigned_subjects(newer)
            told = any(Open.DATE in mail.unsigned or _is_known_otherwise(mail) for mail in found)
            self._unsigned[newer.pk] = (bool(found), told)
        is_open, is_told = self._unsigned[newer.pk]
        if not is_open or is_told or newer.submitted_at <= older.submitted_at:
            return is_open
        return older.approved_at is not None and older.approved_at > newer.received_at

    def _has_content_of(self, newer: Series, older: Series) -> bool:
        alike = newer.total == older.total and self._outline[newer.pk] == self._outline[older.pk]
        return alike and self._paths_of(newer) == self._paths_of(older)

    def _paths_of(self, series: Series) -> list[bytes]:
        """A hash for each patch: a mail may name thousands. One whose paths are not known is like no other."""
        if series.pk not in self._paths:
            mine = self._outline[series.pk]
            same = [pk for pk, outline in self._outline.items() if outline == mine and pk not in self._paths]
            self._paths |= {pk: [] for pk in same}
            columns = ("series_id", "message_id", "message__kind", "message__files", "message__paths")
            rows = Patch.objects.filter(series__in=same).order_by("index").values_list(*columns)
            for pk, mail, kind, files, paths in rows.iterator(chunk_size=_MAILS_AT_ONCE):
                known = paths or not (files or kind == Message.Kind.DELETED)
                self._paths[pk].append(sha256("\0".join(paths).encode()).digest() if known else b"mail %d" % mail)
        return self._paths[series.pk]


def _leads_to(series: Series, other: Series) -> bool:
    """Whether `other` is what replaced `series`, directly or not: dates can lie, and none would be left then."""
    above = series.superseded_by_id
    for _ in range(_LONGEST_WAY):
        if above is None or above == other.pk:
            break
        above = Series.objects.values_list("superseded_by", flat=True).get(pk=above)
    return above is not None and above == other.pk


def _has_name(series: Series) -> bool:
    """Whether its subject is known: that of a patch is not the one of the series while a cover letter may come."""
    first = series.patches.filter(index=1, message__in_reply_to="", message__references=[])
    return series.cover_id is not None or first.exists()


def _is_whole(series: Series) -> bool:
    return series.patches.count() >= series.total


def is_replaced_for_good(series: Series) -> bool:
    """Whether a version replaced `series` that may run, or is proved: what anybody can write is none."""
    newer = series.superseded_by
    if newer is None or not (newer.state in _MAY_RUN or _is_proved(newer)):
        return False
    # Who signs no subjects may not have made it: a person can tell.
    return newer.approved_at is not None or not (_same_author(newer, series) and _unsigned_subjects(newer))


def _is_proved(series: Series) -> bool:
    """Whether all its mails are proved to be their senders'."""
    return not _mails(series).exclude(authentic=True).exists()


def _unsigned_subjects(series: Series) -> list[Message]:
    unsigned = _mails(series).filter(unsigned__contains=[Open.SUBJECT])
    return list(unsigned.distinct().only("message_id", "subject", "sender_address", "received_at", "unsigned"))


def _is_known_otherwise(mail: Message) -> bool:
    """Whether it came before with another title or version; lists may have put words of their own before these."""
    mine = parse_subject(mail.subject)
    others = Message.objects.filter(message_id=mail.message_id, sender_address__iexact=mail.sender_address)
    earlier = others.filter(received_at__lte=mail.received_at).exclude(pk=mail.pk).values_list("subject", flat=True)
    return any(
        (t.title, t.version, t.minor) != (mine.title, mine.version, mine.minor) for t in map(parse_subject, earlier)
    )


def _is_unproved(series: Series) -> bool:
    """Whether it waits for a person, whatever is checked: a mail of it is known to be of nobody in particular."""
    return series.state not in _MAY_RUN and _mails(series).filter(authentic=False).exists()


def _mails(series: Series) -> QuerySet[Message]:
    return Message.objects.filter(Q(patches__series=series) | Q(pk=series.cover_id))


def _same_author(one: Series, other: Series) -> bool:
    return one.author_address.lower() == other.author_address.lower()


def _reason(newer: Series, older: Series, *, is_reroll: bool) -> Reason:
    name = f"<{newer.root_message_id}> of {newer.submitted_at:%Y-%m-%d %H:%M} UTC"
    if newer.number > older.number:
        return Because.REPLACED(f"replaced by {newer.mark}")
    if older.rfc and not newer.rfc:
        return Because.REPLACED(f"no RFC any more: replaced by {newer.mark or 'v1'}, {name}")
    return Because.REPLACED(f"{'sent again in part' if is_reroll else 'sent again'}: replaced by {name}")


log = structlog.get_logger(__name__)
NOT_CHECKED = Because.NOT_CHECKED()


def settle_series(series: Series) -> None:
    """Decide about an incomplete series whose last patch has just come. The caller holds the lock of the mails."""
    if gone := deleted_mails(series):
        series.advance(State.REFUSED, Because.MAIL_DELETED(_deleted_reason(gone)))
    else:
        series.advance(State.HELD, NOT_CHECKED)
    supersede(series)
    if series.state == State.HELD:
        enqueue("sources.check_series", series.pk)


def deleted_mails(series: Series) -> list[str]:
    """Message-IDs of its mails that the archive deleted: of patches in their order, then of the cover letter."""
    patches = series.patches.filter(message__kind=Message.Kind.DELETED).order_by("index")
    gone = list(patches.values_list("message__message_id", flat=True))
    if series.cover_id:
        cover = Message.objects.filter(pk=series.cover_id, kind=Message.Kind.DELETED)
        gone += cover.values_list("message_id", flat=True)
    return gone


def refuse_deleted(message: Message) -> None:
    """Refuse whole series of this deleted mail that were not applied; the caller holds the lock of the mails."""
    whole = Series.objects.annotate(there=Count("patches")).filter(
        there=F("total"), state__in=[State.HELD, State.READY]
    )
    held = whole.filter(pk__in=message.patches.values("series")) | whole.filter(cover=message)
    for series in held.distinct().order_by("pk"):
        fields = announced_by(series)
        why = Because.MAIL_DELETED(_deleted_reason(deleted_mails(series)))
        series.advance(State.REFUSED, why, **fields)


def announced_by(series: Series) -> dict[str, Any]:
    """Base commit and others as the stored mails of `series` tell them."""
    order = [series.cover_id] if series.cover_id else []
    order += series.patches.order_by("index").values_list("message_id", flat=True)
    mails = Message.objects.only("base_commit", "change_id", "prerequisites").in_bulk(order)
    return announced(mails[pk] for pk in order)


def announced(mails: Iterable[Message]) -> dict[str, Any]:
    """The columns of a series that its mails tell, the cover letter first: the first word counts."""
    known = list(mails)
    return {
        "base_commit": next((mail.base_commit for mail in known if mail.base_commit), ""),
        "change_id": next((mail.change_id for mail in known if mail.change_id), ""),
        "prerequisites": list(few_needs(need for mail in known for need in mail.prerequisites)),
    }


def _deleted_reason(gone: list[str]) -> str:
    shown = ", ".join(f"<{name}>" for name in gone[:3])
    return f"the archive deleted {shown}" + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")  # noqa: PLR2004
