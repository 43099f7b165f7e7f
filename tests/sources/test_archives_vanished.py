"""What a new history of an epoch says about the mails of the old one."""

from datetime import UTC, datetime

import pytest

from server.sources.archives.archive import Vanished, vanished
from server.sources.archives.epochs import ArchiveStep

_WHEN = datetime(2026, 11, 1, tzinfo=UTC)


def history(mails: str) -> list[ArchiveStep]:
    """One commit for each letter; a dot stands for one that brings no mail."""
    return [ArchiveStep(f"{n}", _WHEN, mail="" if mail == "." else mail) for n, mail in enumerate(mails)]


def compared(old: str, new: str, ids: dict[str, str] | None = None) -> Vanished:
    return vanished(history(old), history(new), ids or {})


@pytest.mark.parametrize(
    ("old", "new", "removed", "missing"),
    [
        ("abcde", "abcdef", "", ""),
        ("abcde", "ab.de", "c", ""),
        ("abcde", "abdefg", "c", ""),
        ("abcde", "de", "abc", ""),
        ("abcde", "ab", "", "cde"),
        ("abcde", "abxy", "", "cde"),
        ("abcde", "xyz", "", "abcde"),
        ("abcde", "", "", "abcde"),
        ("abcde", "abxdy", "", "ce"),
        ("abcde", "abd", "c", "e"),
        ("ab.de", "ab.e", "d", ""),
    ],
)
def test_only_a_history_that_goes_on_behind_a_gap_was_rewritten_on_purpose(
    old: str, new: str, removed: str, missing: str
) -> None:
    assert compared(old, new) == Vanished(frozenset(removed), frozenset(missing))


def test_edit_puts_a_mail_of_the_same_message_id_into_the_same_place() -> None:
    ids = {"c": "c@x", "C": "c@x", "e": "e@x", "E": "e@x"}
    assert compared("abcde", "abCdE", ids) == Vanished(frozenset("ce"), frozenset())
    assert compared("abcde", "abCdX", ids) == Vanished(frozenset("c"), frozenset("e"))


def test_mail_with_a_known_message_id_in_another_place_is_no_edit() -> None:
    assert compared("abc", "xyb", {"c": "c@x", "x": "c@x"}) == Vanished(frozenset(), frozenset("ac"))
