"""What a mail is: a patch, a cover letter, or discussion."""

import re
from typing import Literal

from server.sources.mail.subjects import Marks

Kind = Literal["cover", "patch", "other", "unusable"]
_PULL_SUBJECT = re.compile(r"(?:git )?pull\b|please pull", re.IGNORECASE)
_PULL_TEXT = ("are available in the git repository at", "are available in the Git repository at")


def kind_of(marks: Marks, body: str, *, has_diff: bool) -> tuple[Kind, str]:
    """The kind of a mail, with the reason where it is not what it looks like."""
    if marks.reply or not (marks.patch or has_diff):
        return "other", ""
    if not marks.patch and _asks_to_pull(marks, body):
        # Some show all that they ask to pull: that can be tried like a patch.
        return ("patch", "a pull request: its diff is one patch") if has_diff else ("other", "a pull request")
    if marks.index == 0 and marks.total:
        return "cover", "a cover letter that holds a diff: the diff is not applied" if has_diff else ""
    return ("patch", "") if has_diff else ("other", "marked as a patch, but holds no diff")


def _asks_to_pull(marks: Marks, body: str) -> bool:
    words = " ".join(marks.tags)
    return bool(_PULL_SUBJECT.search(words) or _PULL_SUBJECT.match(marks.title)) or any(t in body for t in _PULL_TEXT)
