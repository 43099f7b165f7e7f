"""What the mails of a series say about where it belongs, beside base-commit and blobs."""

from collections.abc import Sequence

from server.sources.applying.screening import ScreenedMail
from server.sources.bases.places import Clues
from server.sources.mail.parser import parse_mail
from server.sources.mail.subjects import parse_subject
from server.sources.models import Series


def clues_of(series: Series, mails: Sequence[ScreenedMail]) -> Clues:
    """Words of all subjects' brackets and addresses of all To and Cc, of cover letter and patches, in lower case."""
    messages = [patch.message for patch in series.patches.select_related("message")]
    if series.cover:
        messages.append(series.cover)
    words = {tag.lower() for tag in series.tags}
    addresses: set[str] = set()
    for message in messages:
        words.update(tag.lower() for tag in parse_subject(message.subject).tags)
        mail = parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at)
        addresses.update(mail.recipients)
    paths = frozenset().union(*(mail.paths for mail in mails))
    return Clues(frozenset(words), frozenset(addresses), paths, series.mailing_list.tree_id)
