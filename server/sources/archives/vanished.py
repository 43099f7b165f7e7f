"""Which mails a rewritten history has really taken away, as a purge or an edit does: their content goes here too.

A remote that is broken, or was set back to an older state, has lost mails as well. It is told apart by what is left: a
history that still holds a later mail of the old one, with nothing foreign before it, was not cut off and grown anew,
but written again without some mails.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from server.core.locks import advisory_lock
from server.sources.archives.copies import EpochCopy, Step
from server.sources.messages.storing import forget_message, read_mail, restore_message
from server.sources.models import Epoch, MailingList, Message

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Vanished:
    """Blobs of mails that a history has not any more: taken away on purpose, and just missing."""

    removed: frozenset[str]
    missing: frozenset[str]


def settle_replaced(epoch: Epoch, copy: EpochCopy, others: list[EpochCopy], *, clean_seconds: float) -> int:
    """Forget what vanished with the replaced histories of `copy`, once the new one is read to its end.

    `others` are all other epochs of the list, fetched to their ends: a mail may have moved there. What was purged
    leaves the disk now, if that takes less than `clean_seconds`, else at upkeep. Returns how many mails lost their
    content. Killed anywhere, the next call does the rest.
    """
    forgotten = 0
    for commit in copy.replaced():
        if not copy.holds(commit, copy.head()):
            forgotten += _forget_vanished(epoch, copy, others, commit)
    _restore_returned(epoch.mailing_list, sorted([copy, *others], key=lambda one: one.number))
    # Upkeep that packs the copy at this moment could keep what was purged; then the next round lets go of it.
    with advisory_lock(f"sources.tend.{copy.repository.git_dir}") as free:
        if free:
            copy.end_again(epoch.last_commit, seconds=clean_seconds)
    return forgotten


def _forget_vanished(epoch: Epoch, copy: EpochCopy, others: list[EpochCopy], old_head: str) -> int:
    old, new = copy.steps(old_head), copy.steps(copy.head())
    changed = {step.mail for step in old} ^ {step.mail for step in new}
    found = vanished(old, new, _message_ids(epoch.mailing_list, changed))
    removed, missing = found.removed, found.missing
    for other in others if removed or missing else []:
        there = {step.mail for step in other.steps(other.head())} if other.head() else set()
        removed, missing = removed - there, missing - there
    if missing:
        name = epoch.mailing_list.name
        log.warning("mails_missing_in_archive", list=name, epoch=epoch.number, old=old_head, kept=len(missing))
    return sum(forget(epoch.mailing_list, blob) for blob in sorted(removed))


def _restore_returned(mailing_list: MailingList, copies: list[EpochCopy]) -> None:
    """What the archive holds after all has its content again: a history may lack mails for a while by a mistake, and a
    mail that was deleted may have been taken once more.
    """
    dead = Message.objects.filter(mailing_list=mailing_list, kind=Message.Kind.DELETED)
    blobs = set(dead.values_list("blob", flat=True))
    living = _living(copies) if blobs else {}
    for copy in copies:
        back = [blob for blob in blobs if living.get(blob) is copy]
        if not back:
            continue
        log.warning("mails_returned_to_archive", list=mailing_list.name, epoch=copy.number, mails=len(back))
        with copy.repository.objects() as reader:
            for message in dead.filter(blob__in=back):
                if found := reader.read(message.blob):
                    mail = read_mail(found[1], blob=message.blob, received_at=message.received_at)
                    restore_message(message=message, mail=mail)


def _living(copies: list[EpochCopy]) -> dict[str, EpochCopy]:
    """The blobs of all mails that were not deleted after they were last taken, with the epoch that took them last."""
    living: dict[str, EpochCopy] = {}
    for copy in copies:
        for step in copy.steps(copy.head()) if copy.head() else []:
            living.pop(step.deleted, None)
            if step.mail:
                living[step.mail] = copy
    return living


def forget(mailing_list: MailingList, blob: str) -> bool:
    """Take the content of a mail away; False if it was not there."""
    there = Message.objects.filter(mailing_list=mailing_list, blob=blob).exclude(kind=Message.Kind.DELETED).exists()
    if there:
        forget_message(mailing_list=mailing_list, blob=blob)
    return there


def vanished(old: list[Step], new: list[Step], message_ids: Mapping[str, str]) -> Vanished:
    """Compare two histories of one epoch. `message_ids`: of every mail that only one of them has."""
    was, now = {step.mail for step in old if step.mail}, {step.mail for step in new if step.mail}
    lost = was - now
    # An edit replaces a commit in its place.
    pairs = zip(old, new, strict=False)
    edits = {b.mail: a.mail for a, b in pairs if a.mail in lost and _same_mail(a.mail, b.mail, message_ids)}
    # Where the old history ends in each of the two.
    last_old = max((n for n, step in enumerate(old) if step.mail and step.mail in now), default=-1)
    last_new = max((n for n, step in enumerate(new) if step.mail and step.mail in was), default=-1)
    foreign = any(step.mail and step.mail not in was and step.mail not in edits for step in new[: last_new + 1])
    removed = set(edits.values())
    if not foreign:
        removed |= {step.mail for step in old[: last_old + 1]} & lost
    return Vanished(frozenset(removed), frozenset(lost - removed))


def _same_mail(old: str, new: str, message_ids: Mapping[str, str]) -> bool:
    return bool(new) and new != old and old in message_ids and message_ids[old] == message_ids.get(new)


def _message_ids(mailing_list: MailingList, blobs: set[str]) -> dict[str, str]:
    rows = Message.objects.filter(mailing_list=mailing_list, blob__in=blobs)
    return dict(rows.values_list("blob", "message_id"))
