"""Mails about findings that are bisected after their reports were written."""

import pytest
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.detection.models import Comparison, Finding
from server.reports.models import Delivery, Report
from server.reports.moderation import approve_report
from server.reports.outbox import send_delivery
from server.reports.renewal import CHANGED
from server.reports.writing import compose_report, tell_news
from tests.builders import because, build_finding
from tests.reports.tellable import about, split_series

pytestmark = pytest.mark.django_db


def split_finding() -> Finding:
    return build_finding(split_series(), Finding.Kind.SPLIT, headline="Regressed on haswell, improved on zen3.")


def bisected_after(report: Report) -> None:
    """The finding's change in haswell did not show again: that cell is heard no more."""
    finding = about(report)
    finding.advance(Finding.State.BISECTING, because("asked by ada"))
    gone = Comparison.objects.get(session__machine__name="box-haswell")
    check = {"name": "again", "outcome": "failed", "text": "not seen again", "machine": "box-haswell"}
    Finding.objects.filter(pk=finding.pk).update(
        checks=[check | {"comparisons": [gone.pk]}], kind="improved", headline="Improved on zen3."
    )
    finding.advance(Finding.State.CONFIRMED, because("not seen again"))


def test_draft_that_its_finding_outgrew_is_written_anew_and_approved_by_nobody_unread() -> None:
    report = compose_report(finding_id=split_finding().pk)
    assert report is not None
    bisected_after(report)
    with pytest.raises(DomainError, match="wants to be read again"):
        approve_report(report_id=report.pk)
    report.refresh_from_db()
    assert report.state == Report.State.DRAFT
    assert report.body.startswith("Improved: 20 % faster on zen3 (1000 -> 800.0 ns);")
    assert "slower" not in report.body
    assert approve_report(report_id=report.pk).state == Report.State.APPROVED


def test_mail_that_was_approved_before_the_bisection_does_not_leave_as_it_was(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    report = compose_report(finding_id=split_finding().pk)
    assert report is not None
    delivery = approve_report(report_id=report.pk).delivery
    bisected_after(report)
    assert not send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == ("failed", CHANGED)


def test_mail_waits_while_the_finding_is_bisected_and_one_that_left_before_is_remembered(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    report = compose_report(finding_id=split_finding().pk)
    assert report is not None
    delivery = approve_report(report_id=report.pk).delivery
    finding = about(delivery.report)
    finding.advance(Finding.State.BISECTING, because("looking"))
    send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.reason) == (Delivery.State.QUEUED, "the revision that made it is being looked for")
    # It was being sent when the bisection began.
    Report.objects.filter(pk=delivery.report.pk).update(state=Report.State.SENT)
    finding.advance(Finding.State.CONFIRMED, because("found"))
    tell_news(finding_id=finding.pk)
    finding.refresh_from_db()
    assert finding.state == Finding.State.REPORTED
