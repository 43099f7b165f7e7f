"""Mails that may be anybody's, among others of the same sender that are proved.

Whoever writes somebody's address on a mail must not change what that person's own mails are: their number, what they
replace, or that they are whole. Until senders are proved nobody can tell; from then on what is not proved is looked at
like another person's, and a held series that is whole without it goes on without it.
"""

from collections.abc import Iterable, Mapping

from server.sources.mail.threads import Version
from server.sources.models import MailingList, Message


def is_proved(mail: Message) -> bool:
    return mail.mailing_list.proof == MailingList.Proof.ARCHIVE or mail.authentic is True


def doubted_mails(messages: Mapping[int, Message], held: Iterable[set[int]]) -> set[int]:
    """Those of `messages` that are not proved, of senders who have proved others; `held` are the mails of held series.

    What is not checked yet is among them only while a held series has mails of both kinds: whoever forged one of these
    could else send the next before that is found out.
    """
    proved = {_sender(m) for m in messages.values() if is_proved(m)}
    contested = {sender for mails in held for sender in _contested(messages, mails)}
    loose = (m for m in messages.values() if not is_proved(m) and _sender(m) in proved)
    return {m.pk for m in loose if m.authentic is False or _sender(m) in contested}


def is_whole_without_doubted(
    messages: Mapping[int, Message], mails: set[int], patches: set[int], others: set[int], versions: Iterable[Version]
) -> bool:
    """Whether a held series of these `mails`, some of them `patches`, is a whole version without those not proved.

    `versions` are made with doubt. Nothing new comes in by that, and no mail of `others`; where a place would be free,
    a person decides about the series as it is.
    """
    if not _contested(messages, mails):
        return False
    proved = {pk for pk in patches & messages.keys() if is_proved(messages[pk])}
    for version in versions:
        own = {p.key for p in version.postings}
        whole = version.complete and proved <= own | {p.key for p in version.carried}
        if whole and own < mails and not own & others:
            return all(is_proved(messages[pk]) for pk in own)
    return False


def _contested(messages: Mapping[int, Message], mails: set[int]) -> set[str]:
    """The senders who proved some of these mails, but not all, where all are checked."""
    known = [messages[pk] for pk in mails & messages.keys()]
    if any(m.authentic is None and not is_proved(m) for m in known):
        return set()
    return {_sender(m) for m in known if is_proved(m)} & {_sender(m) for m in known if not is_proved(m)}


def _sender(mail: Message) -> str:
    return mail.sender_address.lower()
