"""Mail servers that are slow, silent, greylisting, or break off: nothing is lost, and no mail gets a second name."""

import time
from datetime import timedelta
from email import message_from_bytes

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.models import Transition
from server.reports.models import Bounce, Delivery, Report
from server.reports.outbox import send_delivery, send_rest, wake_outbox
from server.reports.writing import compose_report
from tests.reports.hostile_server import HostileServer, Line, Talk, hostile_server
from tests.reports.test_outbox import queued, regressed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""
    settings.EMAIL_BACKEND = "server.reports.sending.wire.MailWire"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_TIMEOUT = 0.5


def answering(**answers: str) -> Talk:
    named = {{"dot": "."}.get(name, name).upper(): said for name, said in answers.items()}

    def talk(line: Line) -> None:
        line.greet()
        line.serve(named)

    return talk


def tried(server: HostileServer, settings: Settings, delivery: Delivery) -> Delivery:
    settings.EMAIL_PORT = server.port
    Delivery.objects.filter(pk=delivery.pk).update(not_before=None)
    send_delivery(delivery_id=delivery.pk)
    return Delivery.objects.get(pk=delivery.pk)


def three_readers() -> Delivery:
    report = compose_report(finding_id=regressed().pk)
    assert report is not None
    Report.objects.update(to=["ada@example.org"], cc=["linux-mm@example.org", "bob@example.org"])
    return report.delivery


def slow_greeting(line: Line) -> None:
    line.trickle("220 mx.example.org ESMTP\r\n", 0.7)


def endless_answer(line: Line) -> None:
    line.say("220 mx")
    line.hear()
    for _ in range(2000):
        line.say("250-" + "x" * 500)


def closing_in_the_mail(line: Line) -> None:
    line.greet()
    while line.hear().upper() != "DATA":
        line.say("250 OK")
    line.say("354 go on")


def no_answer_to_the_mail(line: Line) -> None:
    line.greet()
    line.serve({".": ""})


@pytest.mark.parametrize(
    "script",
    [
        slow_greeting,
        endless_answer,
        closing_in_the_mail,
        lambda line: line.say("554 no mail today"),
        lambda line: line.say("220 " + "x" * 100_000),
        lambda line: line.say("421 too busy"),
        lambda line: line.say("\x00\xff garbage"),
        lambda _line: None,
        answering(MAIL="421 closing"),
        answering(MAIL="451 4.7.1 greylisted"),
        answering(MAIL="530 5.7.0 must issue STARTTLS first"),
        answering(RCPT="451 4.7.1 greylisted"),
        answering(RCPT="421 closing"),
        answering(DATA="451 try later"),
        answering(dot="451 4.3.0 disk is full"),
        answering(dot="421 closing"),
    ],
)  # fmt: skip
def test_mail_waits_while_the_server_is_not_well_and_leaves_once_it_is(script: Talk, settings: Settings) -> None:
    delivery = queued()
    with hostile_server(script) as server:
        delivery = tried(server, settings, delivery)
    assert (delivery.state, delivery.reason_code) == (Delivery.State.QUEUED, "not-sent")
    assert delivery.not_before is not None
    assert not Bounce.objects.exists()
    with hostile_server(answering()) as server:
        delivery = tried(server, settings, delivery)
    assert delivery.state == Delivery.State.SENT
    assert len(server.taken) == 1


@pytest.mark.parametrize(
    "script",
    [
        answering(MAIL="552 5.3.4 message size exceeds fixed limit"),
        answering(MAIL="550 5.7.1 sender not welcome"),
        answering(RCPT="550 5.1.1 no such user"),
        answering(DATA="554 5.7.1 refused"),
        answering(dot="554 5.7.1 taken for spam"),
    ],
)
def test_refusal_for_ever_ends_the_mail(script: Talk, settings: Settings) -> None:
    with hostile_server(script) as server:
        delivery = tried(server, settings, queued())
    assert delivery.state == Delivery.State.FAILED


def test_lost_answer_to_a_whole_mail_gives_the_same_mail_again(settings: Settings) -> None:
    with hostile_server(no_answer_to_the_mail, answering()) as server:
        delivery = tried(server, settings, queued())
        assert delivery.state == Delivery.State.QUEUED
        delivery = tried(server, settings, delivery)
    assert delivery.state == Delivery.State.SENT
    assert len(server.taken) == 2
    assert server.taken[0] == server.taken[1]


def test_connection_that_is_lost_before_the_mail_leaves_no_doubt(settings: Settings) -> None:
    with hostile_server(answering(mail="")) as server:
        delivery = tried(server, settings, queued())
    assert delivery.state == Delivery.State.QUEUED
    assert not delivery.in_doubt


def test_talk_has_an_end_however_slowly_it_goes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.reports.sending.wire.SECONDS", 1.0)
    settings.EMAIL_TIMEOUT = 30
    delivery = queued()
    began = time.monotonic()
    with hostile_server(slow_greeting) as server:
        delivery = tried(server, settings, delivery)
    assert time.monotonic() - began < 8
    assert "no end after 1 s" in delivery.reason


def test_who_is_refused_alone_is_written_down_and_the_others_have_the_mail(settings: Settings) -> None:
    with hostile_server(answering(**{"RCPT TO:<BOB@": "550 5.1.1 <bob@example.org> unknown"})) as server:
        delivery = tried(server, settings, three_readers())
    assert (delivery.state, delivery.put_off) == (Delivery.State.SENT, [])
    bounce = Bounce.objects.get()
    assert (bounce.address, bounce.status, bounce.permanent) == ("bob@example.org", "5.1.1", True)
    assert b"bob@example.org" in server.taken[0], "the mail says to whom it was written"


def test_who_is_put_off_alone_gets_the_same_mail_later(settings: Settings) -> None:
    later = answering(**{"RCPT TO:<BOB@": "451 4.7.1 greylisted"})
    with hostile_server(later, later, answering()) as server:
        delivery = tried(server, settings, three_readers())
        assert (delivery.state, delivery.put_off) == (Delivery.State.SENT, ["bob@example.org"])
        assert delivery.not_before is not None
        assert not send_rest(delivery_id=delivery.pk), "not before its time"
        for _ in range(2):
            delivery.refresh_from_db()
            with time_machine.travel(delivery.not_before + timedelta(seconds=1)):
                send_rest(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    delivery = Delivery.objects.get()
    assert delivery.put_off == []
    assert delivery.not_before is None
    assert delivery.tries == 3
    assert len(server.taken) == 2
    assert server.taken[0] == server.taken[1]
    named = [command for command in server.lines[-1].commands if command.upper().startswith("RCPT")]
    assert named == ["rcpt TO:<bob@example.org>"]
    assert not Bounce.objects.exists()


def test_who_is_put_off_for_days_is_given_up(settings: Settings) -> None:
    with hostile_server(answering(**{"RCPT TO:<BOB@": "451 later"})) as server:
        delivery = tried(server, settings, three_readers())
        with time_machine.travel(clock.now() + timedelta(days=5, hours=1)):
            assert send_rest(delivery_id=delivery.pk)
    assert Bounce.objects.get().status == "4.4.7"
    assert Delivery.objects.get().put_off == []


def test_stop_switch_holds_second_tries_too(settings: Settings) -> None:
    with hostile_server(answering(**{"RCPT TO:<BOB@": "451 later"})) as server:
        delivery = tried(server, settings, three_readers())
        settings.MAIL_ENABLED = False
        with time_machine.travel(clock.now() + timedelta(hours=2)):
            assert not send_rest(delivery_id=delivery.pk)
    assert len(server.lines) == 1


def test_server_without_starttls_gets_no_mail_where_it_must_be_encrypted(settings: Settings) -> None:
    settings.EMAIL_USE_TLS = True
    with hostile_server(answering()) as server:
        delivery = tried(server, settings, queued())
    assert delivery.state == Delivery.State.QUEUED
    assert server.taken == []


def test_size_is_announced_and_odd_texts_are_wrapped_for_every_server(settings: Settings) -> None:
    def sized(line: Line) -> None:
        line.greet("SIZE 1000000")
        line.serve({})

    delivery = queued()
    body = f"Gemessen von Jürgen\n.\n..dots\n{'y' * 1200}\n"
    Report.objects.update(body=body)
    with hostile_server(sized) as server:
        delivery = tried(server, settings, delivery)
    assert delivery.state == Delivery.State.SENT
    assert any("size=" in command for command in server.lines[0].commands)
    lines = server.taken[0].split(b"\r\n")
    assert max(map(len, lines)) <= 998
    assert server.taken[0].isascii()
    undotted = b"\r\n".join(line.removeprefix(b".") for line in lines)
    read = message_from_bytes(undotted).get_payload(decode=True)
    assert isinstance(read, bytes)
    assert read.replace(b"\r\n", b"\n").decode() == body


def test_crowd_is_never_written_to(settings: Settings) -> None:
    delivery = queued()
    Report.objects.update(cc=[f"p{n}@example.org" for n in range(300)])
    with hostile_server(answering()) as server:
        delivery = tried(server, settings, delivery)
    assert (delivery.state, delivery.reason) == (Delivery.State.FAILED, "301 recipients are too many")
    assert server.lines == []


def test_mail_that_loses_its_sender_each_time_ends() -> None:
    delivery = queued()
    for _ in range(12):
        delivery.refresh_from_db()
        delivery.advance(Delivery.State.SENDING, tries=delivery.tries + 1)
        with time_machine.travel(clock.now() + timedelta(minutes=3)):
            wake_outbox()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason_code) == (Delivery.State.FAILED, "given-up")


def test_pauses_grow_to_an_hour_and_are_not_all_the_same(settings: Settings) -> None:
    waits = []
    delivery = queued()
    with hostile_server(answering(dot="451 later")) as server:
        for tries in (0, 1, 5, 50, 50):
            Delivery.objects.filter(pk=delivery.pk).update(tries=tries)
            with time_machine.travel(clock.now(), tick=False):
                now = clock.now()
                delivery = tried(server, settings, delivery)
            assert delivery.not_before is not None
            waits.append((delivery.not_before - now).total_seconds())
    assert all(most * 0.75 <= wait <= most for wait, most in zip(waits, (30, 60, 960, 3600, 3600), strict=True))
    assert waits[-1] != waits[-2]


class Killed(BaseException):
    """The worker is gone: nothing after this line runs."""


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_worker_killed_around_the_mail_gives_one_message_id(
    moment: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between commit and sending, between the mail and its answer, and between the answer and the commit."""

    def die(*_arguments: object) -> None:
        raise Killed

    delivery = queued()
    with monkeypatch.context() as patch, hostile_server(answering()) as server:
        if moment == "before":
            patch.setattr("server.reports.outbox.transmit", die)
        elif moment == "between":
            patch.setattr("smtplib.SMTP.getreply", answers_until_the_mail(die))
        else:
            patch.setattr("server.reports.outbox._sent", die)
        settings.EMAIL_PORT = server.port
        with pytest.raises(Killed):
            send_delivery(delivery_id=delivery.pk)
    before = list(server.taken)
    with time_machine.travel(clock.now() + timedelta(minutes=3)):
        wake_outbox()
    with hostile_server(answering()) as server:
        delivery = tried(server, settings, delivery)
    assert delivery.state == Delivery.State.SENT
    mails = [*before, *server.taken]
    assert len(mails) == (1 if moment == "before" else 2)
    assert {message_from_bytes(mail)["Message-ID"] for mail in mails} == {f"<{delivery.message_id}>"}
    assert len(set(mails)) == 1
    assert Transition.objects.filter(subject="delivery", after="sent").count() == 1


def answers_until_the_mail(die: object) -> object:
    import smtplib

    real = smtplib.SMTP.getreply
    seen: list[int] = []

    def getreply(client: smtplib.SMTP) -> tuple[int, bytes]:
        if 354 in seen:
            # The server has the whole mail.
            time.sleep(0.1)
            seen.clear()
            assert callable(die)
            die()
        code, text = real(client)
        seen.append(code)
        return code, text

    return getreply
