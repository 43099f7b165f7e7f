"""A worker of bench.mail: Tidemark's own parser and threading, as the service uses them, without a database."""

from collections.abc import Sequence
from datetime import UTC, datetime

from bench.mailboxes import Thread
from bench.rounds import Outcome, serve
from server.sources.mail.collect import series_in
from server.sources.mail.parser import parse_mail

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
