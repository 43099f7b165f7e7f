"""Moderating mails on their pages: read as it leaves, edited, held, let go, stopped; and two moderators at once."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.management import call_command
from django.test import Client
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.dashboard.mail_pages import changed_lines
from server.reports.models import Delivery, MailStop, Report
from server.reports.moderation import hold_report, seen_now
from server.reports.outbox import send_delivery
from server.reports.stop_switch import may_leave
from tests.dashboard.conftest import Reader
from tests.dashboard.test_mails import released, report, words

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def mail_is_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.MAIL_ENABLED = True
    # What the rows say is the composer's; here it is what was written.
    monkeypatch.setattr("server.reports.renewal.other_text", lambda _report: None)


@pytest.fixture
def moderator(client: Client) -> User:
    user = User.objects.create_user("mo", "mo@example.org", "a long enough word", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="change_report"))
    client.force_login(user)
    return user


def act(client: Client, row: Report, what: str, **fields: Any) -> Any:
    given = {"act": what, "seen": seen_now(row.pk), "reason": "read", **fields}
    return client.post(f"/mails/{row.pk}/act/", given)


@pytest.mark.usefixtures("moderator")
def test_a_draft_is_read_as_it_leaves_and_approved(client: Client) -> None:
    row = report()
    text = Reader(client).read(f"/mails/{row.pk}/")
    assert "To: ada@example.org" in text
    assert "Approve and send" in text
    assert act(client, row, "approve", reason="").status_code == 302
    row.refresh_from_db()
    assert row.state == Report.State.APPROVED
    last = Transition.objects.filter(subject="report", subject_id=row.pk).latest("pk")
    assert last.actor == "mo"
    assert send_delivery(delivery_id=row.delivery.pk)
    assert [sent.subject for sent in mail.outbox] == ["Re: mm: Batch it"]


@pytest.mark.usefixtures("moderator")
def test_an_edited_text_leaves_and_the_page_shows_what_was_changed(client: Client) -> None:
    row = report(body="Regressed on zen3.\n\nAll data: here\n", composed="Regressed on zen3.\n\nAll data: here\n")
    assert act(client, row, "edit", body="Slower on zen3.\r\n\r\nAll data: here\r\n").status_code == 302
    text = Reader(client).read(f"/mails/{row.pk}/")
    assert "-Regressed on zen3." in text
    assert "+Slower on zen3." in text
    assert act(client, row, "approve").status_code == 302
    assert send_delivery(delivery_id=Delivery.objects.get().pk)
    assert mail.outbox[0].body == "Slower on zen3.\n\nAll data: here\n"


@pytest.mark.usefixtures("moderator")
def test_text_that_cannot_leave_is_refused_by_line_and_stays_in_the_form(client: Client) -> None:
    row = report()
    answer = act(client, row, "edit", body="x" * 79 + "\nna\u00efve")
    assert answer.status_code == 400
    text = answer.content.decode()
    assert "line 1 has 79 columns, 78 at most; line 2, column 3" in text
    assert "x" * 79 in text
    row.refresh_from_db()
    assert row.body == "Regressed on zen3.\n"


@pytest.mark.usefixtures("moderator")
def test_held_and_let_go_and_rejected_each_with_a_reason(client: Client) -> None:
    row = report()
    assert act(client, row, "hold", reason="").status_code == 400
    assert act(client, row, "hold", reason="ask Ada first").status_code == 302
    assert "ask Ada first" in words(Reader(client).read("/mails/?state=held"))
    assert act(client, row, "release", reason="she said yes").status_code == 302
    assert act(client, row, "reject", reason="wrong base").status_code == 302
    row.refresh_from_db()
    assert (row.state, row.reason) == (Report.State.REJECTED, "wrong base")


@pytest.mark.usefixtures("moderator")
def test_who_comes_second_is_told_what_the_first_did(client: Client) -> None:
    row = report()
    seen = seen_now(row.pk)
    hold_report(report_id=row.pk, reason="not yet", actor="ann")
    answer = act(client, row, "approve", seen=seen)
    assert answer.status_code == 409
    assert "ann at" in answer.content.decode()
    row.refresh_from_db()
    assert row.state == Report.State.HELD


def test_only_moderators_decide(client: Client) -> None:
    row = report()
    assert act(client, row, "approve")["Location"].startswith("/login/")
    client.force_login(User.objects.create_user("eve", "", "a long enough word"))
    assert act(client, row, "approve").status_code == 403
    assert client.post("/mails/switch/", {"reason": "x"}).status_code == 403
    assert "Approve and send" not in Reader(client).read(f"/mails/{row.pk}/")
    row.refresh_from_db()
    assert row.state == Report.State.DRAFT
    assert may_leave()


@pytest.mark.usefixtures("moderator")
def test_a_stopped_site_sends_nothing_that_was_queued(client: Client) -> None:
    waiting = released()
    client.post("/mails/switch/", {"reason": "wrong figures on zen5"})
    assert not send_delivery(delivery_id=waiting.pk)
    assert mail.outbox == []
    text = words(Reader(client).read("/mails/"))
    assert "mo stopped all mails and calls" in text
    assert "Nothing leaves the site now." in text
    stop = MailStop.objects.get()
    client.post("/mails/switch/", {"reason": "mended", "stop": stop.pk})
    assert send_delivery(delivery_id=waiting.pk)
    assert len(mail.outbox) == 1
    assert "mo let it go on" in words(Reader(client).read("/mails/"))


@pytest.mark.usefixtures("moderator")
def test_switch_wants_a_reason_and_ends_only_the_stop_that_was_shown(client: Client) -> None:
    client.post("/mails/switch/", {"reason": " "})
    assert may_leave()
    client.post("/mails/switch/", {"reason": "first"})
    first = MailStop.objects.get()
    client.post("/mails/switch/", {"reason": "ok", "stop": first.pk})
    client.post("/mails/switch/", {"reason": "second"})
    answer = client.post("/mails/switch/", {"reason": "ok", "stop": first.pk}, follow=True)
    assert "has stopped it again since: second" in answer.content.decode()
    assert not may_leave()


@pytest.mark.parametrize("given", [{}, {"act": "burn"}, {"act": "approve", "seen": "-1"}, {"act": "hold", "seen": "x"}])
@pytest.mark.usefixtures("moderator")
def test_a_wrong_form_does_nothing_and_says_why(client: Client, given: dict[str, str]) -> None:
    row = report()
    answer = client.post(f"/mails/{row.pk}/act/", given)
    assert answer.status_code == 400
    assert "Nothing was done:" in answer.content.decode()
    row.refresh_from_db()
    assert row.state == Report.State.DRAFT


@pytest.mark.usefixtures("moderator")
def test_there_is_no_such_mail(client: Client) -> None:
    assert client.post("/mails/987/act/", {"act": "approve", "seen": 0}).status_code == 404


def test_command_prints_the_mail_as_it_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    delivery = released()
    call_command("report", str(delivery.report.finding_id))
    told = capsys.readouterr()
    head, _, body = told.out.partition("\n\n")
    assert f"Message-ID: <{delivery.message_id}>" in head
    assert "To: ada@example.org" in head
    assert "Auto-Submitted: auto-generated" in head
    assert body.startswith("Regressed on zen3.")
    assert "leaves with the next round of the outbox" in told.err


def test_difference_shows_lines_that_came_and_went() -> None:
    lines = changed_lines("a\nb\nc\n", "a\nd\nc\n")
    assert [(line.mark, line.text) for line in lines if line.mark in "+-"] == [("-", "b"), ("+", "d")]


@pytest.mark.usefixtures("moderator")
def test_what_a_person_stopped_is_not_said_to_be_switched_off(client: Client) -> None:
    released("Re: mm: I wait")
    client.post("/mails/switch/", {"reason": "the list complains"})
    text = Reader(client).read("/mails/")
    assert "a person stopped all mails and calls" in text
    assert "Would leave now if nobody had stopped it" in text
    assert "switched off" not in text
