"""What comes back: who does not take our mails, what rests for it, and what anybody could have made up."""

import io
import random
from datetime import timedelta
from types import SimpleNamespace

import pytest
import time_machine
from django.core.management import call_command
from pytest_django.fixtures import Settings

from server.core import clock
from server.reports.models import Bounce, Delivery, RestingAddress, ReturnedMail
from server.reports.outbox import send_delivery
from server.reports.sending.bounces import read_returned_mails, refusals_of_lists, refusing_lists, returns
from server.reports.sending.headers import envelope_sender
from server.reports.sending.readers import opt_outs
from server.reports.sending.returned_mail import read_notice
from server.sources.models import MailingList, Message
from tests.reports import notices
from tests.reports.conftest import Server
from tests.reports.test_outbox import queued
from workers.reports import sweep

pytestmark = pytest.mark.django_db
ADA, LIST = "ada@example.org", "linux-mm@example.org"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = settings.MAIL_BOUNCES = settings.MAIL_REPLY_TO = ""


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> object:
    """Hands a mail to the service as a mail server does."""

    def pipe(raw: bytes) -> ReturnedMail:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
        call_command("import_mail", "-", "--one", stdout=io.StringIO())
        sweep()
        return ReturnedMail.objects.get(message=Message.objects.latest("pk"))

    return pipe


def sent() -> Delivery:
    delivery = queued()
    assert send_delivery(delivery_id=delivery.pk)
    return Delivery.objects.get(pk=delivery.pk)


def meaning(piped: object, notice: str, delivery: Delivery, who: str = ADA, **more: object) -> str:
    assert callable(piped)
    raw = notices.filled(notice, message_id=delivery.message_id, who=who, **more)  # type: ignore[arg-type]
    row = piped(raw)
    assert isinstance(row, ReturnedMail)
    return row.meaning


@pytest.mark.parametrize(
    ("name", "told", "status"),
    [
        ("POSTFIX", "bounce", "5.1.1"),
        ("POSTFIX_HEADERS", "bounce", "5.2.2"),
        ("POSTFIX_LATE", "delay", None),
        ("FORWARDED", "bounce", "5.7.1"),
        ("EXCHANGE", "bounce", "5.1.10"),
        ("OLD_EXCHANGE", "bounce", "5.1.1"),
        ("QMAIL", "bounce", "5.1.1"),
        ("EXIM", "bounce", "5.7.1"),
        ("EXIM_LATE", "delay", None),
        ("DELIVERED", "automatic", None),
        ("VACATION", "automatic", None),
        ("PERSON", "other", None),
    ],
)
def test_notice_is_understood(name: str, told: str, status: str | None, piped: object, server: Server) -> None:
    delivery = sent()
    assert meaning(piped, getattr(notices, name), delivery) == told
    bounces = [(one.delivery_id, one.address, one.status, one.permanent) for one in Bounce.objects.all()]
    assert bounces == ([] if status is None else [(delivery.pk, ADA, status, True)])


@pytest.mark.parametrize("name", ["POSTFIX", "QMAIL", "EXIM", "EXCHANGE"])
def test_forged_notice_does_nothing(name: str, piped: object, server: Server) -> None:
    delivery = sent()
    notice = getattr(notices, name)
    assert meaning(piped, notice, delivery, who="torvalds@example.org") == "not-ours"
    other = Delivery(message_id="never.sent@perf.example.org")
    assert meaning(piped, notice, other, number=2) == "not-ours"
    assert not Bounce.objects.exists()
    assert not RestingAddress.objects.exists()


def test_message_id_alone_proves_nothing_where_each_delivery_has_an_address(
    piped: object, server: Server, settings: Settings
) -> None:
    settings.MAIL_BOUNCES = "bounces@perf.example.org"
    delivery = sent()
    assert meaning(piped, notices.POSTFIX, delivery) == "not-ours"
    guessed = f"bounces+{delivery.pk}.0123456789ab@perf.example.org"
    assert meaning(piped, notices.POSTFIX, delivery, to=guessed, number=2) == "not-ours"
    assert meaning(piped, notices.POSTFIX, delivery, to=envelope_sender(delivery), number=3) == "bounce"


def test_address_that_is_gone_rests_at_once_and_a_person_may_lift_it(piped: object, server: Server) -> None:
    meaning(piped, notices.POSTFIX, sent())
    row = RestingAddress.objects.get()
    assert (row.address, row.reason) == (ADA, "there is no such address (5.1.1)")
    assert ADA in opt_outs([ADA])
    second = sent()
    assert server.recipients == [LIST]
    RestingAddress.objects.update(lifted_at=clock.now())
    sent()
    assert server.recipients == [ADA, LIST]
    assert not opt_outs([ADA])
    with time_machine.travel(clock.now() + timedelta(hours=1)):
        assert meaning(piped, notices.POSTFIX_HEADERS, second, number=9) == "bounce"
    assert not opt_outs([ADA]), "what came back before it was lifted does not count"


def test_other_refusals_count_when_they_come_on_two_days(piped: object, server: Server) -> None:
    one, other, third = sent(), sent(), sent()
    with time_machine.travel("2026-12-01T10:00:00Z"):
        meaning(piped, notices.EXIM, one)
        meaning(piped, notices.EXIM, other, number=2)
    assert not RestingAddress.objects.exists()
    with time_machine.travel("2026-12-02T10:00:00Z"):
        meaning(piped, notices.EXIM, third, number=3)
    assert RestingAddress.objects.get().reason == "mails came back on 2 days (5.7.1)"


def test_list_that_refuses_never_rests_and_the_operator_is_told(piped: object, server: Server) -> None:
    delivery = sent()
    assert MailingList.objects.filter(address=LIST).exists()
    for number in (1, 2):
        meaning(piped, notices.EXIM.replace("5.7.1", "5.1.1"), delivery, who=LIST, number=number)
    assert not RestingAddress.objects.exists()
    (refusal,) = refusing_lists(refusals_of_lists())
    assert (refusal.address, refusal.status, refusal.report) == (LIST, "5.1.1", delivery.report_id)
    meaning(piped, notices.QMAIL, delivery, number=3)
    assert returns([delivery.pk]) == {delivery.pk: [f"{LIST} refused it (5.1.1)", "it came back from 1 address"]}
    with time_machine.travel(clock.now() + timedelta(days=8)):
        assert refusing_lists(refusals_of_lists()) == []


def test_notice_that_comes_twice_counts_once(piped: object, server: Server) -> None:
    delivery = sent()
    assert callable(piped)
    raw = notices.filled(notices.EXIM, message_id=delivery.message_id, who=ADA)
    piped(raw)
    piped(raw)
    read_returned_mails()
    assert Bounce.objects.count() == ReturnedMail.objects.count() == 1


def test_mails_of_lists_are_not_read_as_notices(piped: object, server: Server) -> None:
    delivery = sent()
    raw = notices.filled(notices.POSTFIX, message_id=delivery.message_id, who=ADA, to=LIST)
    assert callable(piped)
    with pytest.raises(ReturnedMail.DoesNotExist):
        piped(raw)
    assert not Bounce.objects.exists()


def test_spoiled_notices_raise_nothing() -> None:
    chance = random.Random(7)  # noqa: S311
    known = [value for name, value in vars(notices).items() if name.isupper() and isinstance(value, str)]
    for _ in range(1500):
        raw = bytearray(notices.filled(chance.choice(known), message_id="a@b.example", who=ADA))
        for _ in range(chance.randint(1, 20)):
            place = chance.randrange(len(raw))
            raw[place : place + chance.randint(0, 30)] = chance.randbytes(chance.randint(0, 8))
        read_notice(bytes(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 1000,
        b"Content-Type: multipart/report; boundary=x\n\n" + b"--x\nContent-Type: multipart/a; boundary=x\n\n" * 5000,
        b"From: mailer-daemon@x\nX-Failed-Recipients: " + b"(" * 200_000 + b"\n\npermanent\n",
        b"From: mailer-daemon@x\n\npermanent\n" + b"<a@b>:\n" * 30_000,
        b"From: mailer-daemon@x\n\npermanent\n" + b"a@b on " + b" " * 200_000 + b"\n",
        b"From: mailer-daemon@x\n\npermanent\n" + b"-" * 250_000,
    ],
)  # fmt: skip
def test_notice_made_to_cost_time_ends(raw: bytes) -> None:
    assert len(read_notice(raw).failures) <= 100
