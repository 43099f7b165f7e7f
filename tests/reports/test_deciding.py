"""What people decide about a report, on what they were shown."""

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.findings.checks import Name, set_checks
from server.detection.findings.result import remake
from server.detection.models import Finding
from server.reports.models import Delivery, Report
from server.reports.moderation import (
    approve_report,
    edit_report,
    hold_report,
    reject_report,
    release_report,
    seen_now,
)
from server.reports.outbox import send_delivery
from tests.reports.tellable import about, news, send, silence, told, unmoderated, version

pytestmark = pytest.mark.django_db
UP = "regressed"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""


def draft(**cases: str) -> Report:
    finding = version({"zen3": cases or {"fork": UP}})
    news(finding)
    return Report.objects.get(first_of=finding)


def edited(report: Report, body: str) -> Report:
    return edit_report(
        report_id=report.pk, body=body, seen=seen_now(report.pk), actor="ada", reason="said more plainly"
    )


def test_held_report_leaves_only_after_a_person_let_it() -> None:
    unmoderated()
    report = draft()
    assert report.state == Report.State.APPROVED
    hold_report(report_id=report.pk, reason="looks odd", actor="ada")
    assert not send_delivery(delivery_id=report.delivery.pk)
    report.refresh_from_db()
    assert (report.state, report.reason) == (Report.State.HELD, "looks odd")
    release_report(report_id=report.pk, reason="it is fine", actor="bob")
    assert not send_delivery(delivery_id=report.delivery.pk), "to let it go is another decision"
    assert send(report)
    assert Transition.objects.filter(subject="report", actor="ada", after="held").count() == 1


def test_held_report_may_be_approved_or_rejected_at_once() -> None:
    for decide, state in ((approve_report, "approved"), (reject_report, "rejected")):
        report = draft()
        hold_report(report_id=report.pk, reason="looks odd", actor="ada")
        assert decide(report_id=report.pk, reason="seen", actor="bob").state == state


def test_held_report_says_what_its_finding_says_and_stays_held_for_its_reason() -> None:
    report = draft(fork=UP, mmap=UP)
    hold_report(report_id=report.pk, reason="looks odd", actor="ada")
    silence(about(report), "fork")
    news(about(report))
    report.refresh_from_db()
    assert (report.state, report.reason) == (Report.State.HELD, "looks odd")
    assert "1 of 1" in report.body or "fork" not in report.body.split("\n\n")[0]
    assert report.body == report.composed


def test_edited_text_leaves_as_it_was_edited_and_what_was_written_stays_beside_it() -> None:
    report = draft()
    written = report.body
    edited(report, "It is slower.\r\nSee the page.  \n\n")
    report.refresh_from_db()
    assert (report.body, report.composed, report.is_edited) == ("It is slower.\nSee the page.\n", written, True)
    assert "It is slower.\nSee the page." in send(report).get_payload()


def test_edited_text_is_never_written_over_and_is_read_again_when_its_finding_moves_on() -> None:
    report = draft(fork=UP, mmap=UP)
    edited(report, "Both are slower.\n")
    approve_report(report_id=report.pk, actor="ada")
    before = Report.objects.get(pk=report.pk).composed
    silence(about(report), "fork")
    news(about(report))
    report.refresh_from_db()
    assert (report.state, report.body, report.released) == (Report.State.DRAFT, "Both are slower.\n", False)
    assert report.composed != before
    assert Delivery.objects.get().state == Delivery.State.FAILED


def test_edited_report_waits_for_a_person_on_a_list_that_is_not_moderated() -> None:
    unmoderated()
    report = draft(fork=UP, mmap=UP)
    hold_report(report_id=report.pk, reason="wants words", actor="ada")
    edited(report, "Both are slower.\n")
    approve_report(report_id=report.pk, actor="ada")
    silence(about(report), "fork")
    assert not send_delivery(delivery_id=report.delivery.pk)
    report.refresh_from_db()
    assert report.state == Report.State.DRAFT


def test_new_text_of_an_open_list_leaves_without_a_person() -> None:
    unmoderated()
    report = draft(fork=UP, mmap=UP)
    old = report.body
    silence(about(report), "fork")
    news(about(report))
    report.refresh_from_db()
    assert report.state == Report.State.APPROVED
    assert report.body != old
    assert str(send(report).get_payload()).rstrip() == report.body.rstrip()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (" \n\n", "the text is empty"),
        ("x" * 79, "line 1 has 79 columns, 78 at most"),
        ("fine\n" * 61, "it has 61 lines, 60 at most"),
        ("gr\u00f6\u00dfer", r"line 1, column 3: '\xf6' is no printable ASCII"),
        ("a\x00b", r"line 1, column 2: '\x00' is no printable ASCII"),
    ],
)
def test_text_that_could_not_leave_is_refused_with_what_and_where(body: str, said: str) -> None:
    report = draft()
    with pytest.raises(DomainError) as refused:
        edited(report, body)
    assert (refused.value.code, said in refused.value.message) == ("unusable-text", True)


def test_text_about_virtual_machines_says_so_whoever_writes_it(settings: Settings) -> None:
    settings.MAIL_SINK = "127.0.0.1:2525"
    report = draft()
    Finding.objects.filter(pk=about(report).pk).update(virtual=True)
    with pytest.raises(DomainError, match="NOT EVIDENCE"):
        edited(report, "It is slower.\n")
    edited(report, "Virtual, not evidence: it is slower.\n")


def test_whoever_comes_second_is_told_what_happened() -> None:
    report = draft()
    seen = seen_now(report.pk)
    hold_report(report_id=report.pk, reason="looks odd", actor="ada", seen=seen)
    for decide in (approve_report, reject_report, release_report):
        with pytest.raises(DomainError) as refused:
            decide(report_id=report.pk, reason="fine", actor="bob", seen=seen)
        assert refused.value.code == "changed"
        assert "ada" in refused.value.message
    with pytest.raises(DomainError):
        edit_report(report_id=report.pk, body="x", seen=seen, actor="bob", reason="y")


def test_text_that_was_renewed_since_it_was_shown_is_approved_by_nobody() -> None:
    report = draft(fork=UP, mmap=UP, exec=UP)
    for case in ("fork", "mmap"):
        seen = seen_now(report.pk)
        silence(about(report), case)
        news(about(report))
        with pytest.raises(DomainError) as refused:
            approve_report(report_id=report.pk, actor="ada", seen=seen)
        assert refused.value.code == "changed"
    assert approve_report(report_id=report.pk, actor="ada", seen=seen_now(report.pk)).state == "approved"


def test_what_left_is_neither_held_nor_edited_nor_rejected() -> None:
    finding = version({"zen3": {"fork": UP}})
    report = told(finding)
    for decide in (hold_report, reject_report, release_report):
        with pytest.raises(DomainError):
            decide(report_id=report.pk, reason="too late", actor="ada")
    with pytest.raises(DomainError):
        edited(report, "Something else.\n")
    assert len(mail.outbox) == 1


def test_who_and_why_are_said() -> None:
    report = draft()
    for actor, reason in (("", "odd"), ("ada", " ")):
        with pytest.raises(DomainError):
            hold_report(report_id=report.pk, reason=reason, actor=actor)


def test_what_was_put_back_before_it_left_leaves_once_it_may() -> None:
    unmoderated()
    report = draft(fork=UP, mmap="improved")
    finding = about(report)
    # A change for the better alone waits for a person; then it is a split once more.
    silence(finding, "fork")
    news(finding)
    report.refresh_from_db()
    assert (report.state, report.delivery.state) == (Report.State.DRAFT, Delivery.State.FAILED)
    finding.refresh_from_db()
    set_checks(finding, [Name.AGAIN], [])
    remake(finding)
    news(finding)
    report.refresh_from_db()
    assert report.state == Report.State.APPROVED
    before = len(mail.outbox)
    assert send_delivery(delivery_id=Delivery.objects.get(report=report).pk)
    assert len(mail.outbox) == before + 1


def test_who_let_go_of_what_he_held_decides_about_a_new_text_too() -> None:
    unmoderated()
    report = draft(fork=UP, mmap=UP)
    hold_report(report_id=report.pk, reason="looks odd", actor="ada")
    release_report(report_id=report.pk, reason="looked at it", actor="ada")
    for case in ("fork", "exec"):
        silence(about(report), case)
        news(about(report))
        report.refresh_from_db()
        assert report.state == Report.State.DRAFT
    assert not send_delivery(delivery_id=report.delivery.pk)
