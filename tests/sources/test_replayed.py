"""A mail that its author signed without the subject, posted again by anybody as a version that never was."""

from collections.abc import Sequence
from datetime import timedelta
from email.utils import format_datetime

import pytest

from server.core import clock
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series, TrustedSender
from server.sources.series.formation import group_stale
from server.sources.series.requests import approve_series, may_be_approved
from server.sources.trust.series_check import check_series
from tests.builders import build_list
from tests.sources.posting import DIFF, mail
from tests.sources.signing import Names, sign

State = Series.State
DATED = ("from", "message-id", "date", "to")
UNDATED = ("from", "message-id", "to")
WHOLE = (*DATED, "subject")
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def public(sent_tasks: object) -> MailingList:
    TrustedSender.objects.create(address="ada@example.org")
    return build_list()


def made(
    version: int, *, title: str = "mm: Do it", name: str = "", days: int | None = None, signed: Sequence[str] = DATED
) -> bytes:
    mark = f"PATCH v{version}" if version > 1 else "PATCH"
    date = format_datetime(clock.now() - timedelta(days=30) + timedelta(days=version if days is None else days))
    return sign(mail(f"[{mark}] {title}", DIFF, message_id=name or f"v{version}@x", date=date), headers=signed)


def post(mailing_list: MailingList, *mails: bytes) -> None:
    for raw in mails:
        store_message(mailing_list=mailing_list, raw=raw)
        group_stale()
        for series in Series.objects.filter(state=State.HELD, checked_at=None):
            check_series(series=series, lookup=Names("example.org"))


def states() -> dict[str, str]:
    return {f"{row.mark or 'v1'} {row.subject}": row.state for row in Series.objects.order_by("pk")}


def as_version_99(raw: bytes, title: str = "mm: Do it") -> bytes:
    head, _, rest = raw.partition(b"Subject: ")
    return head + f"Subject: [PATCH v99] {title}\n".encode() + rest.partition(b"\n")[2]


@pytest.mark.parametrize("signed", [DATED, UNDATED])
@pytest.mark.parametrize("first", [True, False], ids=["before v1", "after v1"])
def test_old_mail_as_a_later_version_ends_nothing(public: MailingList, signed: Sequence[str], *, first: bool) -> None:
    one = made(1, signed=signed)
    post(public, *([as_version_99(one), one] if first else [one, as_version_99(one)]))
    post(public, made(2, signed=signed))
    found = states()
    assert Message.objects.filter(authentic=True).count() == 3
    assert (found["v2 mm: Do it"], found["v99 mm: Do it"]) == (State.READY, State.READY)


def test_mail_of_another_series_as_a_later_version_ends_nothing(public: MailingList) -> None:
    other = made(1, title="mm: Else", name="else@x", days=9)
    post(public, made(1), made(2), other, as_version_99(other))
    assert states()["v2 mm: Do it"] == State.READY


def test_version_whose_subject_nobody_signs_replaces_the_one_before(public: MailingList) -> None:
    post(public, made(1), made(2))
    assert states() == {"v1 mm: Do it": State.SUPERSEDED, "v2 mm: Do it": State.READY}


def test_person_may_approve_what_an_unsigned_subject_replaced(public: MailingList) -> None:
    post(public, made(1), as_version_99(made(9, name="unseen@x")))
    old = Series.objects.get(version=1)
    assert (old.state, may_be_approved(old)) == (State.SUPERSEDED, True)
    approve_series(series=old, reason="it is no v99")
    old.refresh_from_db()
    assert old.state == State.READY


def test_version_whose_subject_is_signed_replaces_for_good(public: MailingList) -> None:
    post(public, made(1, signed=WHOLE), made(2, signed=WHOLE))
    old = Series.objects.get(version=1)
    assert (old.state, may_be_approved(old)) == (State.SUPERSEDED, False)


def test_server_s_word_says_no_more_than_the_signature(public: MailingList, settings: object) -> None:
    settings.AUTHSERV_IDS = {"mx.example.net"}  # type: ignore[attr-defined]
    said = b"Authentication-Results: mx.example.net; dkim=pass header.d=example.org\n"
    one, two = made(1), made(2)
    post(public, said + one, said + as_version_99(one), said + two)
    assert states()["v2 mm: Do it"] == State.READY
