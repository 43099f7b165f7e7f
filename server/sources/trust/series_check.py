"""Trust: whether a series may run without a person's approval.

Everyone who sent a mail of it must be trusted, and every mail proved to be from its sender. All else stays held, with
what is missing in the reason.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Q, QuerySet

from server.core import clock
from server.core.access.tries import MOST_BEGUN, OutOfBoundsError, bounded, failures, note_failure
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.sources.messages.storage import lock_mail
from server.sources.models import MailingList, Message, Open, Series, Thread, TrustedSender
from server.sources.supersession import supersede
from server.sources.trust.dkim_keys import Lookup, look_up_key, remembering
from server.sources.trust.proofs import (
    Proof,
    UnprovableError,
    covered,
    differ_in_blanks,
    open_in_any,
    prove_by_dkim,
    prove_by_results,
    read_provable,
    servers_for,
)
from server.sources.trust.senders import Maintainers, trusted_addresses

log = structlog.get_logger(__name__)
State = Series.State

# Shorter than the time limit of the task: what is left is proved the next time.
_SECONDS = 150.0
# Name servers that do not answer are asked again after a minute, then after as long as it has been tried already, but
# four times a day at least, and for three days.
_FIRST_PAUSE = timedelta(minutes=1)
_LONGEST_PAUSE = timedelta(hours=6)
_LONGEST_TRIAL = timedelta(days=3)
# A sender who becomes trusted does not start what nobody waits for any more.
_WORTH_CHECKING = timedelta(days=7)
_LONGEST_REASON = 4000
# A first reading of an archive makes series by the ten thousand: their own tasks wait still, and sending all of them
# again with every sweep would fill the queue faster than it is worked off.
_MOST_AT_ONCE = 100
# So long strangers are looked at before other tasks get their turn: there may be one worker for all of them.
_TURN_SECONDS = 20.0
# Who holds it looks at series of strangers.
_STRANGERS = "sources.trust.strangers"
# What is noted of those that took more than a worker has begins with it.
_TURN = "sources.trust.turn "
_NOT_AGAIN = "and it is not asked again"
_FAILED = Because.NOT_TRUSTED("the check of its senders failed, the service's log says how: a person must approve")
# Of the series that a loose mail may belong to, the newest tell whether its sender is trusted.
_SERIES_ASKED = 5


@dataclass(frozen=True)
class SenderTrust:
    """What is known of all senders together, for people to read."""

    trusted: bool
    reason: str


def check_series(*, series: Series, lookup: Lookup = look_up_key) -> None:
    """Prove the senders of a held series and let it run if all of them are trusted; else its reason says why not.

    Asks name servers, so it must not run inside a transaction. Killed anywhere and repeated, it goes on. That of a
    stranger is put off while another one is looked at: `check_strangers` takes it up.
    """
    with advisory_lock(f"sources.trust.{series.pk}") as free:
        series.refresh_from_db()
        if not free or series.state != State.HELD:
            return
        mails = _mails_of(series)
        senders = set(_by_sender(mails))
        is_strange = not senders <= _listed(senders, mails)
        if is_strange:
            if _is_put_off(series):
                return
            # Paths are compared with patterns, thousands with hundreds: one process at a time, whoever posts them.
            with advisory_lock("sources.trust.paths") as is_free:
                if not is_free:
                    return
                is_strange = has_strangers(series, mails)
        if not is_strange:
            is_over = clock.now() - series.state_since >= _LONGEST_TRIAL
            _check(series, mails, remembering(lookup), end=f"for {_LONGEST_TRIAL.days} days" if is_over else "")
            return
        # Whoever is not trusted decides how long his name servers take: all of them together hold one worker.
        with advisory_lock(_STRANGERS) as is_their_turn:
            if is_their_turn:
                _check(series, mails, _of_stranger(lookup), end=_NOT_AGAIN)
            else:
                # It may have been checked before: then its mails are others now.
                series.note(Because.IN_TURN(), checked_at=None)


def check_strangers(*, lookup: Lookup = look_up_key, seconds: float = _TURN_SECONDS) -> bool:
    """Check series of strangers that were put off, one after the other, for `seconds`. True where some are left.

    False as well where another process is at it.
    """
    deadline = time.monotonic() + seconds
    with advisory_lock(_STRANGERS) as is_their_turn:
        if not is_their_turn:
            return False
        for pk in _put_off():
            if time.monotonic() > deadline:
                return True
            try:
                with bounded(f"{_TURN}{pk}"):
                    _take_turn(pk, lookup)
            except OutOfBoundsError:
                if note_failure(f"{_TURN}{pk}") >= MOST_BEGUN:
                    Series.objects.get(pk=pk).note(_FAILED, checked_at=clock.now())
                raise
            except OperationalError:
                # It says nothing about the series, which keeps its turn.
                raise
            except Exception as error:
                if isinstance(error, DomainError) and not error.permanent:
                    log.warning("series_not_checked_yet", series=pk, reason=error.message)
                    continue
                # What one of them wrote keeps no other waiting.
                log.exception("series_check_failed", series=pk)
                Series.objects.get(pk=pk).note(_FAILED, checked_at=clock.now())
    return False


def _take_turn(pk: int, lookup: Lookup) -> None:
    with advisory_lock(f"sources.trust.{pk}") as free:
        series = Series.objects.get(pk=pk)
        if free and series.state == State.HELD and _is_put_off(series):
            _check(series, _mails_of(series), _of_stranger(lookup), end=_NOT_AGAIN)


def _of_stranger(lookup: Lookup) -> Lookup:
    return remembering(lookup, seconds=_TURN_SECONDS)


def _is_put_off(series: Series) -> bool:
    return series.checked_at is None and series.reason_code == Because.IN_TURN


def _put_off() -> list[int]:
    """Ids of series in the order of their turn: of each domain the newest, then of each the oldest, and so on.

    Whoever posts by the thousand, with name servers that never answer, has others wait for one of his in between; and
    who does so in somebody else's name, without end, for each second one. Those that took more than a worker has, last.
    """
    waiting = Series.objects.filter(state=State.HELD, checked_at=None, reason_code=Because.IN_TURN).order_by("-pk")
    of: defaultdict[str, list[int]] = defaultdict(list)
    for pk, address in waiting.values_list("pk", "author_address").iterator():
        # Rarely more than one person's, where not under a domain such as .co.uk: that costs a later turn, no more.
        of[".".join(address.lower().rpartition("@")[2].split(".")[-2:])].append(pk)
    places = [(min(2 * n, 2 * (len(own) - n) - 1), -pk) for own in of.values() for n, pk in enumerate(own)]
    failed = failures(_TURN)
    return sorted((-pk for _, pk in sorted(places)), key=lambda pk: f"{_TURN}{pk}" in failed)


def _check(series: Series, mails: list[Message], lookup: Lookup, *, end: str) -> None:
    known = {mail.pk for mail in mails if mail.authentic is not None}
    _prove(mails, lookup, end=end)
    verdict = judge(series, mails, twofold=_twofold(mails, lookup))
    _settle(series, mails, verdict)
    nobodys = [mail for mail in mails if mail.authentic is False]
    if any(mail.pk not in known or mail.sender_address.lower() in _proved_senders(mails) for mail in nobodys):
        # Their places may be those of others, who can prove it, or the series is whole without them.
        _group_again(nobodys)
    log.info("series_checked", trace=series.trace, series=series.pk, trusted=verdict.trusted, reason=verdict.reason)


def _proved_senders(mails: list[Message]) -> set[str]:
    return {mail.sender_address.lower() for mail in mails if mail.authentic}


def _mails_of(series: Series) -> list[Message]:
    """The cover letter and all patches, without their texts: thousands of large ones would not fit into memory."""
    rows = Message.objects.filter(pk__in=_mail_ids(series))
    return list(rows.select_related("mailing_list").defer(*Message.LONG).order_by("pk"))


def _mail_ids(series: Series) -> set[int]:
    cover = {series.cover_id} if series.cover_id else set()
    return cover | set(series.patches.values_list("message_id", flat=True))


def _prove(mails: list[Message], lookup: Lookup, *, end: str) -> None:
    """Note on each mail whether its sender is proved; those that are settled already are not looked at again.

    With `end`, in words, a name server that does not answer leaves the mail unproved for good.
    """
    deadline = time.monotonic() + _SECONDS
    for mail in mails:
        if mail.authentic is not None or time.monotonic() > deadline:
            continue
        proof = prove_mail(mail, lookup)
        if proof.proved is None and end:
            proof = Proof(proved=False, how=f"{proof.how}, {end}")
        _note_proof(mail, proof)


def _note_proof(mail: Message, proof: Proof) -> None:
    mail.authentic, mail.authenticity = proof.proved, proof.how[:_LONGEST_REASON].replace("\0", "")
    mail.unsigned = sorted(proof.unsigned)
    mail.save(update_fields=["authentic", "authenticity", "unsigned"])


def prove_loose(*, mail: Message, lookup: Lookup = look_up_key) -> bool:
    """Prove the sender of a mail that waits for that outside of a series: a late cover letter, or a patch whose place
    an unproved one has. Its thread is grouped again. False where nothing was found out, and a later try may.

    Asks name servers, so it must not run inside a transaction.
    """
    if mail.authentic is None:
        if not _is_strange(mail):
            _prove([mail], remembering(lookup), end="")
        else:
            # Their series may take all the time of the other lock.
            with advisory_lock("sources.trust.loose") as is_their_turn:
                if is_their_turn:
                    _prove([mail], _of_stranger(lookup), end=_NOT_AGAIN)
    if mail.authentic is None:
        return False
    _group_again([mail])
    return True


def prove_answer(*, mail: Message, last: bool = False, lookup: Lookup = look_up_key) -> bool | None:
    """Prove the sender of a mail that is no part of a series; None where name servers left it open, unless it is the
    `last` try. As soon as it is settled it is not looked at again.

    Asks name servers, so it must not run inside a transaction.
    """
    _prove([mail], _of_stranger(lookup), end=f"for {_LONGEST_TRIAL.days} days" if last else "")
    return mail.authentic


def sure_headers(mail: Message, names: Collection[str]) -> frozenset[str]:
    """Those headers of `names` of a proved mail that nobody but its sender has written."""
    if mail.mailing_list.proof == MailingList.Proof.ARCHIVE:
        return frozenset(names)
    try:
        return covered(read_provable(_text(mail.pk)), mail.sender_address, names)
    except UnprovableError:
        return frozenset()


def _is_strange(mail: Message) -> bool:
    """Whether its sender would be trusted with no series of its thread."""
    theirs = Series.objects.filter(author_address__iexact=mail.sender_address, patches__message__thread=mail.thread_id)
    found = theirs.distinct().order_by("-pk")[:_SERIES_ASKED]
    return all(has_strangers(series, [mail]) for series in found)


def _group_again(mails: list[Message]) -> None:
    with transaction.atomic():
        Thread.objects.filter(messages__in=[mail.pk for mail in mails]).update(stale=True)
        enqueue("sources.group_threads")


def prove_mail(mail: Message, lookup: Lookup) -> Proof:
    """Whether `mail` is from its sender: its archive is trusted to know, or a server, or a signature says so."""
    if mail.mailing_list.proof == MailingList.Proof.ARCHIVE:
        return Proof(proved=True, how=f"the archive {mail.mailing_list} proves its senders")
    # Not mail.raw: the row would keep the text.
    raw = bytes(Message.objects.values_list("raw", flat=True).get(pk=mail.pk))
    sender = mail.sender_address
    if not raw:
        return Proof(proved=False, how="its text was deleted")
    noted = ""
    handed_in = mail.mailing_list.name == MailingList.SUBMITTED
    # What a person hands in came through no server of ours: a note in its name is the writer's own.
    if servers := frozenset() if handed_in else servers_for(mail.mailing_list.name, settings.AUTHSERV_IDS):
        try:
            read = read_provable(raw)
            proof = prove_by_results(read, sender=sender, servers=servers)
        except UnprovableError as error:
            return Proof(proved=False, how=str(error))
        if proof.proved:
            return proof.leaving(open_in_any(read, sender))
        noted = f"; {proof.how}" if proof.how else ""
    proof = prove_by_dkim(raw, sender=sender, received_at=mail.received_at, lookup=lookup)
    return proof if proof.proved else Proof(proved=proof.proved, how=proof.how + noted)


# --- judging -------------------------------------------------------------------------


def has_strangers(series: Series, mails: list[Message]) -> bool:
    """Whether a sender would not be trusted even if all `mails` were proved."""
    senders = set(_by_sender(mails))
    maintainers = Maintainers(series)
    return any(maintainers.doubt(sender) for sender in senders - _listed(senders, mails))


def _listed(senders: Collection[str], mails: Iterable[Message]) -> set[str]:
    """Those that are trusted whatever they change; of a canary, whose mails nobody but the service could store, all."""
    is_own = all(mail.mailing_list.name == MailingList.CANARY for mail in mails)
    return set(senders) if is_own else trusted_addresses(senders)


def _by_sender(mails: list[Message]) -> dict[str, list[Message]]:
    senders: dict[str, list[Message]] = {}
    for mail in mails:
        senders.setdefault(mail.sender_address.lower(), []).append(mail)
    return senders


def judge(series: Series, mails: list[Message], *, twofold: Collection[int] = ()) -> SenderTrust:
    """Every sender of `mails` with what speaks for it and what is missing. Reads rows and MAINTAINERS only.

    `twofold` are the keys of those that came once more with other blanks.
    """
    senders = _by_sender(mails)
    listed = _listed(senders, mails)
    maintainers = Maintainers(series)
    good, bad = [], []
    for sender, own in sorted(senders.items()):
        doubt = "" if sender in listed else maintainers.doubt(sender)
        if doubt:
            bad.append(f"{sender} is not a trusted sender: not on the list, {doubt}")
        bad.extend(_unproved(sender, own))
        if count := sum(mail.pk in twofold for mail in own):
            bad.append(f"{count} of {len(own)} mails of {sender} came in two forms that differ in blanks, not signed")
        role = "the service itself" if series.canary else "on the list of trusted senders"
        role = role if sender in listed else "maintainer of all that is changed"
        good.append(f"{sender} is {role}, {_how(own)}")
    if not mails:
        bad.append("it has no mails")
    waiting = any(mail.authentic is None for mail in mails)
    end = "the check is repeated" if waiting else "a person must approve"
    return SenderTrust(not bad, ("; ".join(good) if not bad else f"{'; '.join(bad)}: {end}")[:_LONGEST_REASON])


def _unproved(sender: str, mails: list[Message]) -> Iterator[str]:
    """One text for each reason, with how many mails it concerns."""
    reasons: dict[str, int] = {}
    for mail in mails:
        if not mail.authentic:
            reason = mail.authenticity or "not checked yet"
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        yield f"{count} of {len(mails)} mails of {sender} not proved: {reason}"


def _twofold(mails: list[Message], lookup: Lookup) -> set[int]:
    """Those of the proved `mails` that came once more with other blanks, where the signature holds for both."""
    open_ones = [mail for mail in mails if mail.authentic and Open.BLANKS in mail.unsigned]
    names = [mail.message_id for mail in open_ones]
    others = Message.objects.filter(message_id__in=names).exclude(pk__in=[mail.pk for mail in mails])
    copies: dict[tuple[str, str], list[int]] = {}
    for pk, name, sender in others.order_by("pk").values_list("pk", "message_id", "sender_address"):
        copies.setdefault((name, sender.lower()), []).append(pk)
    return {
        mail.pk
        for mail in open_ones
        if (found := copies.get((mail.message_id, mail.sender_address.lower())))
        # All of them: were there a limit, copies without a signature would hide one that has it, or hold the series.
        and any(_is_other_form(mail, pk, lookup) for pk in found)
    }


def _is_other_form(mail: Message, copy: int, lookup: Lookup) -> bool:
    raw = _text(copy)
    if not differ_in_blanks(_text(mail.pk), raw):
        return False
    proof = prove_by_dkim(raw, sender=mail.sender_address, received_at=mail.received_at, lookup=lookup)
    return proof.proved is True


def _text(pk: int) -> bytes:
    return bytes(Message.objects.values_list("raw", flat=True).get(pk=pk))


def _how(mails: list[Message]) -> str:
    return ", ".join(dict.fromkeys(mail.authenticity for mail in mails))


def _settle(series: Series, mails: list[Message], verdict: SenderTrust) -> None:
    """Write the verdict down, unless the series has got another mail meanwhile: then it is checked again."""
    now = clock.now()
    with transaction.atomic():
        # A version that becomes complete at this moment must see this one, or be seen by it.
        lock_mail()
        series.refresh_from_db()
        if series.state != State.HELD or _mail_ids(series) != {mail.pk for mail in mails}:
            return
        if not verdict.trusted:
            series.note(Because.NOT_TRUSTED(verdict.reason), checked_at=now)
        elif series.advance(State.READY, Because.TRUSTED(verdict.reason), checked_at=now):
            enqueue("sources.apply_series", series.pk)
        # What is proved to be of one author may replace more than what anybody could have written.
        supersede(series)


# --- checking again ------------------------------------------------------------------


def series_to_check() -> list[int]:
    """Ids of held series that were never checked, or whose senders name servers left open long enough ago.

    The newest that were never checked come first, and some at a time: somebody waits for them. Those that were put off
    are not among them.
    """
    held = Series.objects.filter(state=State.HELD)
    never = held.filter(checked_at=None).exclude(reason_code=Because.IN_TURN)
    new = list(never.order_by("-pk").values_list("pk", flat=True)[:_MOST_AT_ONCE])
    unclear = Q(patches__message__authentic=None) | Q(cover__isnull=False, cover__authentic=None)
    open_ones = held.filter(unclear, checked_at__isnull=False).distinct().order_by("pk")
    now = clock.now()
    due = [
        pk
        for pk, checked, since in open_ones.values_list("pk", "checked_at", "state_since")
        if checked and now - checked >= min(max(_FIRST_PAUSE, checked - since), _LONGEST_PAUSE)
    ]
    return new + due[:_MOST_AT_ONCE]


def strangers_wait() -> bool:
    """Whether a series was put off since a stranger's was looked at."""
    return Series.objects.filter(state=State.HELD, checked_at=None, reason_code=Because.IN_TURN).exists()


def check_again(held: QuerySet[Series]) -> int:
    """Check the senders of held series anew: what proves or trusts them has changed. Returns how many."""
    found = list(held.filter(state=State.HELD).values_list("pk", flat=True))
    mails = Message.objects.filter(Q(patches__series__in=found) | Q(pk__in=held.filter(pk__in=found).values("cover")))
    with transaction.atomic():
        # Grouping writes series before mails: without its lock each could wait for the other.
        lock_mail()
        Message.objects.filter(pk__in=mails.values("pk"), authentic=False).update(authentic=None)
        Series.objects.filter(pk__in=found, state=State.HELD).update(checked_at=None, **Because.NOT_CHECKED().columns())
        for pk in found:
            enqueue("sources.check_series", pk)
    return len(found)


def trust_sender(*, address: str, note: str = "") -> TrustedSender:
    """Put `address` on the list of trusted senders, or change its note; what it sent lately is checked again."""
    known = TrustedSender.objects.filter(address__iexact=address).first()
    sender = known or TrustedSender(address=address)
    sender.note = note
    sender.full_clean()
    sender.save()
    if known is None:
        check_again(held_series_of(address))
    return sender


def held_series_of(address: str) -> QuerySet[Series]:
    """Held series with a mail from `address` that came lately enough that somebody waits for them."""
    sent = Q(patches__message__sender_address__iexact=address) | Q(cover__sender_address__iexact=address)
    recent = Series.objects.filter(state=State.HELD, received_at__gte=clock.now() - _WORTH_CHECKING)
    return Series.objects.filter(pk__in=recent.filter(sent).values("pk"))
