"""Whether git reads in a mail what our own parser read: what was counted, shown and asked about, and nothing else."""

import re

from server.sources.applying.screening_git import Reading
from server.sources.mail.parser import ParsedMail

# git leaves letters of a diff in the mail's charset, our parser reads them: that there are some is told from both.
_LETTERS = re.compile(r"[^\0-\x7f]+")


def reads_alike(reading: Reading, mail: ParsedMail) -> bool:
    """Whether the message and diff that git found are the end of the body; lines before it are git's headers in it.

    Empty lines are not compared, for where two parts meet each reader has its own.
    """
    told = _lines((reading.message + b"\n" + reading.diff).decode("latin-1"))
    shown = _lines(mail.body)
    return len(told) <= len(shown) and told == shown[len(shown) - len(told) :]


def changes_more(reading: Reading, mail: ParsedMail) -> bool:
    """Whether git counts more lines than the pages do. `reading` counts each of them twice, for old and new names."""
    counted = (number for line in reading.counts for number in line.split(b"\t")[:2])
    return sum(int(number) for number in counted if number.isdigit()) > 2 * (mail.diff.insertions + mail.diff.deletions)


def _lines(text: str) -> list[str]:
    # Inside base64 git leaves the CR of a line's end, our parser does not; nor NUL, which is refused later.
    lines = (line.rstrip("\r") for line in _LETTERS.sub("\ufffd", text.replace("\0", "")).split("\n"))
    return [line for line in lines if line.strip()]
