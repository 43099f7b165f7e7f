"""What must hold for every mail, whatever is in it. Needs no Django: fuzzers run it in environments of their own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from bench.mail.ours import series_in
from server.sources.mail.diffs import read_diff
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.mail.postings import Posting, Version, posting_of
from server.sources.mail.series_shape import versions_of

RECEIVED = datetime(2027, 1, 1, tzinfo=UTC)
# Lengths of columns, by the names of fields here; a test holds them beside the models.
LENGTHS = {
    "message_id": 500,
    "in_reply_to": 500,
    "references": 500,
    "sender_address": 320,
    "author_address": 320,
    "base_commit": 40,
    "change_id": 200,
    "tags": 200,
    "prerequisites": 300,
    "recipients": 320,
}
LARGEST_INTEGER = 2**31 - 1
_OLDEST = datetime(1970, 1, 1, tzinfo=UTC)


def read_checked(raw: bytes) -> ParsedMail:
    """Parse `raw`; AssertionError where the result is not what every mail must give."""
    parsed = parse_mail(raw, blob="b" * 40, received_at=RECEIVED)
    assert parsed == parse_mail(raw, blob="b" * 40, received_at=RECEIVED), "two readings differ"
    assert parsed.kind in {"cover", "patch", "other", "unusable"}, parsed.kind
    assert parsed.message_id, "no Message-ID"
    assert parsed.reason or parsed.kind != "unusable", "unusable without a reason"
    assert _OLDEST <= parsed.sent_at <= RECEIVED.replace(year=RECEIVED.year + 1), parsed.sent_at
    for name, value in _leaves("mail", parsed):
        check_storable(name, value)
    if parsed.kind == "patch":
        assert read_diff(parsed.body) == read_diff(parsed.body), "two readings of the diff differ"
    return parsed


def check_storable(name: str, value: object) -> None:
    """PostgreSQL takes no NUL, no half of a surrogate pair, no number above its column's largest."""
    if isinstance(value, str):
        assert "\0" not in value, f"{name} holds NUL"
        value.encode()
        longest = LENGTHS.get(name)
        assert longest is None or len(value) <= longest, f"{name} has {len(value)} characters"
    elif isinstance(value, int):
        assert 0 <= value <= LARGEST_INTEGER, f"{name} is {value}"
    elif isinstance(value, datetime):
        # PostgreSQL refuses some time zones that Python knows.
        assert value.utcoffset() == timedelta(0), f"{name} is not in UTC"


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if is_dataclass(value):
        for one in fields(value):
            yield from _leaves(one.name, getattr(value, one.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _leaves(name, item)
    elif value is not None:
        yield name, value


def postings_of(mails: Iterable[ParsedMail]) -> list[Posting]:
    return [
        posting_of(
            key=key,
            message_id=mail.message_id,
            in_reply_to=mail.in_reply_to,
            references=mail.references,
            sender=mail.sender_address,
            sent_at=mail.sent_at,
            marks=mail.marks,
            naked=mail.kind == "other",
        )
        for key, mail in enumerate(mails)
        if mail.kind in {"patch", "cover"} or mail.may_be_cover
    ]


def check_versions(postings: Sequence[Posting], chance: Random) -> tuple[Version, ...]:
    """Every posting is in exactly one version, on its own place, and the order of arrival does not matter.

    A mail that only might be a cover letter (naked) may be in none.
    """
    found = versions_of(postings)
    taken = sorted(p.key for version in found for p in version.postings)
    naked = {p.key for p in postings if p.naked}
    assert len(taken) == len(set(taken)), "a mail is in two versions"
    assert set(taken) | naked == {p.key for p in postings}, "a mail is in no version"
    for version in found:
        assert version.total >= 1, version.total
        assert version.postings, "a version without mails"
        places = [p.index for p in version.patches]
        assert places == sorted(set(places)), places
        assert not places or places[0] >= 1, places
        assert not version.complete or set(places) >= set(range(1, version.total + 1)), (places, version.total)
    mixed = chance.sample(list(postings), len(postings))
    assert versions_of(mixed) == found, "the order of arrival matters"
    return found


def check_together(mails: Sequence[ParsedMail], chance: Random) -> None:
    """The mails of one thread or of several, as versions and as series."""
    check_versions(postings_of(mails), chance)
    held = [mail for series in series_in(mails) for mail in (series.cover, *series.patches) if mail is not None]
    assert all(mail.kind in {"patch", "cover"} or mail.may_be_cover for mail in held), "a series holds another mail"
