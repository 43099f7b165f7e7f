"""Why a patch or cover letter is in no series: written on the mail, and taken back when it finds its place."""

from server.sources.messages.joining import POSTED
from server.sources.models import Message
from server.sources.series.rows import ThreadRows

COPY = "another copy of a mail that is here already"
TWIN = "another mail with this Message-ID and subject was here first"
PLACE_TAKEN = "its place in the series is taken by another mail"
UNPROVED = "came when its series had been checked already, and its sender is not proved"
DOUBTED = "its sender is not proved, but others of that sender are: it may be anybody's"
ROOT_TAKEN = "another series begins with the same Message-ID"
NOT_GROUPED = "could not be made part of a series: "
_OWN = (COPY, TWIN, PLACE_TAKEN, UNPROVED, DOUBTED, ROOT_TAKEN)


def explain_unused(rows: ThreadRows, used: set[int], homeless: set[int]) -> None:
    """Note it on every mail of the thread; what the reading of a mail found stays, as the nearer reason."""
    changed: dict[str, list[int]] = {}
    lists = {(m.message_id, m.subject, m.mailing_list_id) for pk, m in rows.messages.items() if pk not in rows.copies}
    nobodys = _nobodys(rows)
    for message in rows.messages.values():
        if message.kind not in POSTED or (message.reason and not _is_own(message.reason)):
            continue
        reason = ""
        if message.pk in rows.copies:
            twin = (message.message_id, message.subject, message.mailing_list_id) in lists
            reason = TWIN if twin else COPY
        elif message.pk in homeless:
            reason = ROOT_TAKEN
        elif message.pk not in used:
            reason = UNPROVED if message.pk in rows.unproved else DOUBTED if message.pk in nobodys else PLACE_TAKEN
        if reason != message.reason:
            changed.setdefault(reason, []).append(message.pk)
    for reason, keys in changed.items():
        Message.objects.filter(pk__in=keys).update(reason=reason)


def _nobodys(rows: ThreadRows) -> set[int]:
    """Mails that are left out for want of a proof, though nothing else is for their places."""
    postings = [posting for version in rows.versions for posting in version.postings]
    filled = {(p.sender, p.number, p.total, p.index) for p in postings if not p.doubted}
    return {p.key for p in postings if p.doubted and (p.sender, p.number, p.total, p.index) not in filled}


def _is_own(reason: str) -> bool:
    return reason in _OWN or reason.startswith(NOT_GROUPED)
