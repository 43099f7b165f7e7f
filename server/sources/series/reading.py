"""What a person has to read before he approves a series, as lines for a terminal."""

from collections.abc import Iterator

from server.sources.models import Message, Series
from server.sources.series.superseding import replaced_of_others

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
    for patch in series.patches.select_related("message").defer("message__raw").order_by("index"):
        beyond = "" if patch.index <= series.total else f" (beyond the {series.total} that are announced)"
        change = f"+{patch.insertions} -{patch.deletions}"
        yield f"  patch {patch.index}/{series.total}{beyond} {change} {patch.subject}: {_mail(patch.message)}"
    for other in replaced_of_others(series):
        yield f"  ends {line_of(other)}"


def _mail(message: Message) -> str:
    return f"<{message.message_id}> (message {message.pk}) from {message.sender_address}, {_PROOFS[message.authentic]}"
