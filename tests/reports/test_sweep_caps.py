"""A sweep of reports takes some of each kind, and the next one goes on."""

from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Finding
from server.reports.models import Delivery, Report
from server.reports.outbox import queue_delivery
from server.reports.writing import tell_news
from tests.builders import build_finding, build_series
from workers import reports
from workers.reports import sweep

pytestmark = pytest.mark.django_db
Sent = list[tuple[str, tuple[int | str, ...]]]
_MOST = 4


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr("server.reports.outbox._MOST_AT_ONCE", _MOST, raising=False)
    monkeypatch.setattr("server.core.tasks.transaction.on_commit", lambda call, **_options: call())
    settings.MAIL_ENABLED = True


def approved() -> Report:
    finding = build_finding(build_series())
    fields = {"subject": "Re: mm", "body": "b", "in_reply_to": "m@x", "to": ["a@x"]}
    return Report.objects.create(finding=finding, first_of=finding, state=Report.State.APPROVED, **fields)


def test_reports_are_queued_some_at_a_time_until_all_are() -> None:
    for _ in range(3 * _MOST):
        approved()
    sweep()
    assert Delivery.objects.count() == _MOST
    for _ in range(2):
        sweep()
    assert Delivery.objects.count() == 3 * _MOST


def test_a_report_that_cannot_be_queued_keeps_no_other_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = approved(), approved()

    def fails(*, report: Report) -> Delivery:
        if report.pk == first.pk:
            raise DomainError("conflict", "it moved on")
        return queue_delivery(report=report)

    monkeypatch.setattr(reports, "queue_delivery", fails)
    sweep()
    assert Delivery.objects.get().report == second


def test_drafts_are_asked_for_some_at_a_time(sent_tasks: Sent) -> None:
    for _ in range(3 * _MOST):
        build_finding(build_series())
    sweep()
    assert sum(name == "reports.compose" for name, _ in sent_tasks) == _MOST


def test_mails_that_were_put_off_go_behind_those_never_tried(sent_tasks: Sent) -> None:
    deliveries = [
        Delivery.objects.create(report=approved(), message_id=f"{number}@x", state=Delivery.State.QUEUED)
        for number in range(2 * _MOST)
    ]
    tried = [delivery.pk for delivery in deliveries[:_MOST]]
    Delivery.objects.filter(pk__in=tried).update(not_before=clock.now() - timedelta(minutes=1))
    sweep()
    sent = [arguments[0] for name, arguments in sent_tasks if name == "reports.send"]
    assert sent == [delivery.pk for delivery in deliveries[_MOST:]]


def test_news_are_found_however_old_they_are_and_only_while_they_are_news(sent_tasks: Sent) -> None:
    finding, told = build_finding(build_series()), build_finding(build_series())
    Finding.objects.filter(pk=finding.pk).update(state_since=clock.now() - timedelta(days=900))
    tell_news(finding_id=told.pk)
    sweep()
    asked = [arguments[0] for name, arguments in sent_tasks if name == "reports.compose"]
    assert asked == [finding.pk]
