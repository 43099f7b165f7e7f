"""Series of many threads, in memory: what the service does with rows, for measuring and comparing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.mail.mailboxes import Outcome, Thread, serve
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.mail.postings import Posting, Version, posting_of
from server.sources.mail.series_shape import SENT_TOGETHER, JoinedIds, versions_of


@dataclass(frozen=True)
class Collected:
    """One version of a series with its mails; `patches` by index, those carried over from an older version included."""

    version: Version
    cover: ParsedMail | None
    patches: tuple[ParsedMail, ...]


def series_in(mails: Iterable[ParsedMail]) -> Iterator[Collected]:
    """All versions of all series in `mails`, in the order in which they were sent within each thread.

    Copies of one mail, from several lists, count once: Message-ID, subject and sender are the same.
    """
    known = list({(m.message_id, m.subject, m.sender_address.lower()): m for m in mails}.values())
    parents = {m.message_id: m.in_reply_to for m in known}
    for thread in _threads(known):
        postings = [_posting(number, known[number]) for number in thread]
        for version in versions_of(postings, parents):
            cover = known[version.cover.key] if version.cover else None
            yield Collected(version, cover, tuple(known[p.key] for p in version.patches))


def _threads(mails: list[ParsedMail]) -> Iterable[list[int]]:
    """The numbers of the mails that may be in a series, thread by thread."""
    threads = JoinedIds()
    for mail in mails:
        for other in (mail.in_reply_to, *mail.references):
            if other:
                threads.join(mail.message_id, other)
    _join_unthreaded(mails, threads)
    found: dict[str, list[int]] = {}
    for number, mail in enumerate(mails):
        if mail.kind in {"patch", "cover"} or mail.may_be_cover:
            found.setdefault(threads.of(mail.message_id), []).append(number)
    return found.values()


def _join_unthreaded(mails: list[ParsedMail], threads: JoinedIds) -> None:
    """Numbered patches that one person sent within minutes, each in a thread of its own, are looked at together."""
    last: dict[str, ParsedMail] = {}
    for mail in sorted(mails, key=lambda m: (m.sent_at, m.message_id)):
        if mail.in_reply_to or mail.references or mail.marks.index is None or mail.kind not in {"patch", "cover"}:
            continue
        sender = mail.sender_address.lower()
        if sender in last and mail.sent_at - last[sender].sent_at <= SENT_TOGETHER:
            threads.join(last[sender].message_id, mail.message_id)
        last[sender] = mail


def _posting(number: int, mail: ParsedMail) -> Posting:
    return posting_of(
        key=number,
        message_id=mail.message_id,
        in_reply_to=mail.in_reply_to,
        references=mail.references,
        sender=mail.sender_address,
        sent_at=mail.sent_at,
        marks=mail.marks,
        naked=mail.kind == "other",
    )


_RECEIVED = datetime(2030, 1, 1, tzinfo=UTC)


def one_round(threads: Sequence[Thread]) -> Outcome:
    parsed = [
        parse_mail(mail, blob=f"{number}", received_at=_RECEIVED)
        for number, mail in enumerate(mail for thread in threads for mail in thread)
    ]
    found = sum(1 for _ in series_in(parsed))
    return Outcome(len(parsed), sum(mail.kind == "unusable" for mail in parsed), found)


if __name__ == "__main__":
    serve(one_round)
