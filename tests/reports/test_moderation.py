"""Lists that become moderated while mails wait."""

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from server.detection.models import Verdict
from server.lab.models import Session
from server.reports.moderation import approve_report
from server.reports.outbox import send_delivery
from server.reports.writing import compose_report
from server.sources.models import MailingList
from tests.builders import build_comparison, build_finding, build_list, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def test_moderation_that_is_switched_on_holds_what_is_queued_until_a_person_releases_it(settings: Settings) -> None:
    settings.MAIL_ENABLED, settings.MAIL_SINK = True, ""
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    series = build_series(build_list(moderated=False))
    machine = build_machine("box-haswell", virtual=False)
    build_comparison(build_session(series, machine, state=Session.State.DONE), Verdict.REGRESSED)
    finding = build_finding(series)
    report = compose_report(finding_id=finding.pk)
    assert report is not None
    MailingList.objects.update(moderated=True)
    assert send_delivery(delivery_id=report.delivery.pk) is False
    report.delivery.refresh_from_db()
    assert (report.delivery.state, report.delivery.reason) == (
        "failed",
        "its list is moderated since: a person releases it",
    )
    assert not mail.outbox
    approve_report(report_id=report.pk)
    assert send_delivery(delivery_id=report.delivery.pk) is True
    assert len(mail.outbox) == 1
