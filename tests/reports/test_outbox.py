"""From a finding to a mail that has left: once, and only if nothing speaks against it."""

import socket
from datetime import timedelta
from email import message_from_bytes
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Finding, Verdict
from server.lab.models import Boot, Session
from server.reports.models import Delivery, Report
from server.reports.moderation import approve_report, reject_report
from server.reports.outbox import opt_out, queue_delivery, send_delivery, wake_outbox
from server.reports.writing import compose_report, tell_news
from server.sources.models import Message, Series
from tests.builders import (
    because,
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_series,
    build_session,
    tell_boots,
)
from tests.reports.conftest import Server
from tests.reports.tellable import about
from workers.reports import sweep

pytestmark = pytest.mark.django_db
Sent = list[tuple[str, tuple[int | str, ...]]]


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""
    settings.MAIL_HOURLY_CAP = 10


def regressed(*, moderated: bool = False, virtual: bool = False) -> Finding:
    mailing_list = build_list()
    mailing_list.moderated = moderated
    mailing_list.save()
    series = build_series(mailing_list)
    machine = build_machine("box-haswell" if not virtual else "vm-haswell", virtual=virtual)
    build_comparison(build_session(series, machine, state=Session.State.DONE), Verdict.REGRESSED)
    return build_finding(series, virtual=virtual)


def series_of(finding: Finding) -> Series:
    assert finding.series is not None
    return finding.series


def queued(**options: bool) -> Delivery:
    report = compose_report(finding_id=regressed(**options).pk)
    assert report is not None
    return report.delivery


def test_finding_on_an_unmoderated_list_becomes_a_queued_mail(
    sent_tasks: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    finding = regressed()
    with django_capture_on_commit_callbacks(execute=True):
        report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert report.state == Report.State.APPROVED
    assert sent_tasks == [("reports.send", (report.delivery.pk,))]


def test_composing_twice_gives_one_report_and_one_mail() -> None:
    finding = regressed()
    assert compose_report(finding_id=finding.pk) == compose_report(finding_id=finding.pk)
    assert Delivery.objects.count() == 1


def test_moderated_list_waits_for_a_person() -> None:
    report = compose_report(finding_id=regressed(moderated=True).pk)
    assert report is not None
    assert report.state == Report.State.DRAFT
    assert not Delivery.objects.exists()
    call_command("approve_report", str(report.pk))
    assert Delivery.objects.get().report == report


def test_incomplete_report_is_refused_with_its_reason_and_never_mailed() -> None:
    finding = build_finding(build_series())
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert (report.state, report.reason) == (Report.State.REFUSED, "there is no comparison to show")
    with pytest.raises(DomainError):
        approve_report(report_id=report.pk)
    assert not Delivery.objects.exists()


def test_inconclusive_finding_gets_no_report() -> None:
    assert compose_report(finding_id=build_finding(build_series(), Finding.Kind.INCONCLUSIVE).pk) is None


def test_sent_mail_hangs_in_the_thread_and_names_itself(server: Server) -> None:
    delivery = queued()
    assert send_delivery(delivery_id=delivery.pk)
    told = message_from_bytes(server.accepted[0])
    root = series_of(about(delivery.report)).root_message_id
    assert told["In-Reply-To"] == f"<{root}>"
    assert told["References"] == f"<{root}>"
    assert told["Message-ID"] == f"<{delivery.message_id}>"
    assert told["Auto-Submitted"] == "auto-generated"
    assert told["X-Tidemark"] == f"series/{about(delivery.report).series_id}"
    assert told["Subject"] == "Re: [PATCH 0/2] mm: Clear pages twice"
    assert told["To"] == "ada@example.org"
    assert told["Cc"] == "linux-mm@example.org"
    assert told.get_content_type() == "text/plain"


def test_sending_moves_delivery_report_and_finding(server: Server) -> None:
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery = Delivery.objects.get(pk=delivery.pk)
    assert (delivery.state, delivery.tries) == (Delivery.State.SENT, 1)
    assert delivery.report.state == Report.State.SENT
    assert about(delivery.report).state == Finding.State.REPORTED
    assert len(server.accepted) == 1


def test_temporary_refusal_is_tried_again_at_its_time_and_not_before(server: Server) -> None:
    server.answers = ["451 try later"]
    delivery = queued()
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.QUEUED
    assert "451 try later" in delivery.reason
    assert delivery.not_before is not None
    assert send_delivery(delivery_id=delivery.pk) is False, "not before its time"
    with time_machine.travel(delivery.not_before + timedelta(seconds=1)):
        assert send_delivery(delivery_id=delivery.pk)
    assert message_from_bytes(server.accepted[0])["Message-ID"] == f"<{delivery.message_id}>"


def test_second_try_after_a_lost_sender_gives_the_same_bytes(server: Server) -> None:
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    # As if the process had died between the server's answer and its own commit.
    Delivery.objects.filter(pk=delivery.pk).update(state="sending", sent_at=None)
    Report.objects.update(state="approved")
    with time_machine.travel(clock.now() + timedelta(minutes=3)):
        wake_outbox()
    with time_machine.travel(clock.now() + timedelta(minutes=4)):
        assert send_delivery(delivery_id=delivery.pk)
    assert len(server.accepted) == 2
    assert server.accepted[0] == server.accepted[1]


def test_delivery_in_sending_is_left_alone_for_two_minutes() -> None:
    delivery = queued()
    delivery.advance(Delivery.State.SENDING)
    with time_machine.travel(clock.now() + timedelta(seconds=110)):
        wake_outbox()
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.SENDING


def test_permanent_refusal_ends_the_delivery_with_the_servers_words(server: Server) -> None:
    server.refuses = "550 no such list"
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.FAILED
    assert "550 no such list" in delivery.reason
    assert Report.objects.get().state == Report.State.APPROVED


def test_reason_of_a_refusal_names_nobody(server: Server) -> None:
    server.refuses = "550 5.1.1 <eve@example.org>: no such user"
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert "550 5.1.1 (an address): no such user" in delivery.reason
    assert "@" not in delivery.reason


def test_unreachable_server_is_a_temporary_error(settings: Settings, server: Server) -> None:
    settings.EMAIL_PORT = 1
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.QUEUED
    assert delivery.reason.startswith("127.0.0.1:1: ")


def test_delivery_is_given_up_after_many_tries_and_five_days(server: Server) -> None:
    server.answers = ["451 later", "451 later"]
    delivery = queued()
    Delivery.objects.filter(pk=delivery.pk).update(tries=100)
    send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.QUEUED
    with time_machine.travel(clock.now() + timedelta(days=5, minutes=1)):
        send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries) == (Delivery.State.FAILED, 102)
    assert delivery.reason.startswith("given up after 102 tries")


def test_stop_switch_is_asked_at_the_moment_of_sending(settings: Settings) -> None:
    delivery = queued()
    settings.MAIL_ENABLED = False
    assert send_delivery(delivery_id=delivery.pk) is False
    assert not mail.outbox
    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries) == (Delivery.State.QUEUED, 0)


def test_hourly_cap_delays_the_next_mail(settings: Settings) -> None:
    settings.MAIL_HOURLY_CAP = 1
    first, second = queued(), queued()
    assert send_delivery(delivery_id=first.pk)
    assert send_delivery(delivery_id=second.pk) is False
    second.refresh_from_db()
    assert (second.state, second.reason) == ("queued", "the cap of 1 mails an hour is reached")
    with time_machine.travel(clock.now() + timedelta(minutes=61)):
        assert send_delivery(delivery_id=second.pk)


def test_virtual_report_without_a_sink_stays_a_draft() -> None:
    report = compose_report(finding_id=regressed(virtual=True).pk)
    assert report is not None
    assert report.state == Report.State.DRAFT
    assert report.reason.startswith("virtual results never leave the site")
    with pytest.raises(CommandError, match="virtual results never leave the site"):
        call_command("approve_report", str(report.pk))


def test_virtual_report_goes_to_the_sink_and_nowhere_else(settings: Settings, server: Server) -> None:
    settings.MAIL_SINK = f"127.0.0.1:{settings.EMAIL_PORT}"
    settings.EMAIL_PORT = 1
    assert send_delivery(delivery_id=queued(virtual=True).pk)
    assert len(server.accepted) == 1


def test_sink_that_was_taken_away_after_queueing_stops_a_virtual_mail(settings: Settings) -> None:
    settings.MAIL_SINK = "127.0.0.1:2525"
    delivery = queued(virtual=True)
    settings.MAIL_SINK = ""
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.FAILED
    assert not mail.outbox


@pytest.mark.parametrize("sink", ["[2001:db8::1]:25", "192.0.2.1:25", "127.0.0.1", "2525"])
def test_sink_must_be_inside_the_site(settings: Settings, sink: str) -> None:
    settings.MAIL_SINK = sink
    report = compose_report(finding_id=regressed(virtual=True).pk)
    assert report is not None
    assert "loopback" in report.reason


def test_machine_that_turned_out_to_be_virtual_keeps_the_mail_inside() -> None:
    delivery = queued()
    tell_boots(Boot.objects.all(), facts={"virtual": True, "model_name": "x", "cmdline": "y"})
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.FAILED
    assert not mail.outbox


def test_recipients_are_the_people_of_the_thread_each_once_and_never_ourselves() -> None:
    finding = regressed(moderated=True)
    raw = (
        b"From: Ada <ada@example.org>\nTo: ADA@example.org, Bob <bob@example.org>,\n linux-mm@example.org\n"
        b"Cc: tidemark@PERF.example.org, =?utf-8?q?Z=C3=B6e?= <zoe@example.org>, broken@, evil@example.org\n\n.\n"
    )
    Message.objects.filter(message_id=series_of(finding).root_message_id).update(raw=raw)
    opt_out(address="Bob@Example.org")
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert report.to == ["ada@example.org"]
    assert report.cc == ["linux-mm@example.org", "bob@example.org", "zoe@example.org", "evil@example.org"]
    assert send_delivery(delivery_id=approve_report(report_id=report.pk).delivery.pk)
    assert mail.outbox[0].recipients() == [
        "ada@example.org",
        "linux-mm@example.org",
        "zoe@example.org",
        "evil@example.org",
    ]


@pytest.mark.parametrize("hostile", ["(", ":"])
def test_hostile_recipients_stop_no_report(hostile: str) -> None:
    finding = regressed(moderated=True)
    raw = f"Cc: {hostile * 50_000}\n\n.\n".encode()
    Message.objects.filter(message_id=series_of(finding).root_message_id).update(raw=raw)
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert report.cc == ["linux-mm@example.org"]


def test_recipients_are_capped(settings: Settings) -> None:
    finding = regressed(moderated=True)
    crowd = ", ".join(f"p{n}@example.org" for n in range(80))
    Message.objects.filter(message_id=series_of(finding).root_message_id).update(raw=f"To: {crowd}\n\n.\n".encode())
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert len(report.to) + len(report.cc) == settings.MAIL_MAX_RECIPIENTS
    assert report.cc[0] == "linux-mm@example.org"


def test_nobody_is_written_to_when_all_have_opted_out() -> None:
    delivery = queued()
    opt_out(address="ada@example.org")
    opt_out(address="linux-mm@example.org")
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == (
        Delivery.State.FAILED,
        "every recipient has opted out, or does not take mails",
    )


def test_message_id_that_would_break_a_header_is_refused() -> None:
    finding = regressed()
    Series.objects.filter(pk=series_of(finding).pk).update(root_message_id="x>\nBcc: all@example.org")
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert (report.state, report.reason) == ("refused", "the message id of the series cannot be answered")


def test_rejected_report_is_not_sent() -> None:
    delivery = queued()
    reject_report(report_id=delivery.report_id, reason="known trade-off")
    assert send_delivery(delivery_id=delivery.pk) is False
    assert not mail.outbox
    with pytest.raises(DomainError):
        approve_report(report_id=delivery.report_id)


def test_sent_report_cannot_be_rejected() -> None:
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    with pytest.raises(DomainError):
        reject_report(report_id=delivery.report_id, reason="too late")


def test_message_id_is_made_from_the_row_and_the_senders_domain() -> None:
    delivery = queued()
    assert delivery.message_id.startswith(f"tidemark.{delivery.report_id}.")
    assert delivery.message_id.endswith("@perf.example.org")
    assert queue_delivery(report=delivery.report).message_id == delivery.message_id


def test_sweep_finds_what_lost_messages_left(sent_tasks: Sent, django_capture_on_commit_callbacks: Any) -> None:
    unwritten = regressed()
    silent = build_finding(build_series(), Finding.Kind.INCONCLUSIVE)
    unqueued = queued().report
    for looked_at in (silent, about(unqueued)):
        tell_news(finding_id=looked_at.pk)
    Delivery.objects.all().delete()
    with django_capture_on_commit_callbacks(execute=True):
        sweep()
    delivery = Delivery.objects.get(report=unqueued)
    wanted = {("reports.compose", (unwritten.pk,)), ("reports.send", (delivery.pk,)), ("reports.read_commands", ())}
    assert set(sent_tasks) == wanted


def test_report_command_prints_the_mail(capsys: pytest.CaptureFixture[str]) -> None:
    delivery = queued()
    call_command("report", f"<{series_of(about(delivery.report)).root_message_id}>")
    printed = capsys.readouterr().out
    assert "Subject: Re: [PATCH 0/2] mm: Clear pages twice" in printed
    assert f"Message-ID: <{delivery.message_id}>" in printed
    assert delivery.report.body in printed


def test_report_command_says_when_there_is_none() -> None:
    with pytest.raises(CommandError, match=r"no report on <nothing@example.org>"):
        call_command("report", "nothing@example.org")


def supersede(finding: Finding) -> None:
    series_of(finding).advance(Series.State.SUPERSEDED, because("replaced by v2"))


def test_superseded_series_gets_no_report_and_the_sweep_forgets_it(
    sent_tasks: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    finding = regressed()
    supersede(finding)
    assert compose_report(finding_id=finding.pk) is None
    tell_news(finding_id=finding.pk)
    with django_capture_on_commit_callbacks(execute=True):
        sweep()
    assert sent_tasks == [("reports.read_commands", ())]


def test_mail_of_a_series_that_was_superseded_meanwhile_does_not_leave() -> None:
    delivery = queued()
    supersede(about(delivery.report))
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == ("failed", "a newer version has replaced the series")
    assert not mail.outbox
    with pytest.raises(DomainError, match="newer version"):
        approve_report(report_id=delivery.report_id)


@pytest.mark.parametrize("state", [Finding.State.INVALID, Finding.State.ACCEPTED])
def test_what_was_withdrawn_or_accepted_meanwhile_is_not_told(state: str) -> None:
    delivery = queued()
    about(delivery.report).advance(state, because("a person said so"), actor="ada")
    assert not send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == (Delivery.State.FAILED, f"its finding is {Finding.State(state).label}")
    with pytest.raises(DomainError, match=f"finding .* is {Finding.State(state).label}"):
        approve_report(report_id=delivery.report_id)


def test_improvement_waits_for_a_person_on_every_list() -> None:
    finding = regressed()
    Finding.objects.filter(pk=finding.pk).update(kind=Finding.Kind.IMPROVED)
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    assert (report.state, Delivery.objects.count()) == (Report.State.DRAFT, 0)
    assert report.reason == "an improvement is no news for a list: a person decides whether it is told"
    assert send_delivery(delivery_id=approve_report(report_id=report.pk).delivery.pk)


def test_name_service_that_is_away_delays_a_virtual_mail_and_loses_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MAIL_SINK = "sink:2525"

    def away(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr("server.reports.sending.route.socket.getaddrinfo", away)
    delivery = queued(virtual=True)
    assert send_delivery(delivery_id=delivery.pk) is False
    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries) == (Delivery.State.QUEUED, 1)
    assert delivery.reason.startswith("sink cannot be looked up")


def test_letting_a_virtual_mail_go_asks_no_name_service_under_its_locks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "server.reports.sending.route.socket.getaddrinfo", lambda *words, **_options: asked.append(words)
    )
    settings.MAIL_SINK = "sink:2525"
    assert queued(virtual=True).state == Delivery.State.QUEUED
    assert not asked


def test_failed_mail_is_queued_again_by_a_person(server: Server) -> None:
    server.refuses = "550 no such list"
    delivery = queued()
    send_delivery(delivery_id=delivery.pk)
    server.refuses = ""
    approve_report(report_id=delivery.report_id)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries, delivery.not_before) == (Delivery.State.QUEUED, 0, None)
    assert send_delivery(delivery_id=delivery.pk)


def test_mail_that_loses_its_sender_each_time_is_given_up() -> None:
    delivery = queued()
    delivery.advance(Delivery.State.SENDING, tries=1)
    with time_machine.travel(clock.now() + timedelta(minutes=3)):
        wake_outbox()
        delivery.refresh_from_db()
        assert delivery.state == Delivery.State.QUEUED
        assert delivery.not_before is not None
        assert delivery.not_before > clock.now()
        delivery.advance(Delivery.State.SENDING, tries=12)
    with time_machine.travel(clock.now() + timedelta(minutes=9)):
        wake_outbox()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == ("failed", "given up after 12 tries: its sender was lost")
