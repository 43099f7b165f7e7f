"""Several workers at once, each on a connection of its own."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
from django.core import mail
from django.db import connection
from pytest_django.fixtures import Settings

from server.core.models import Transition
from server.detection.models import Finding, Verdict
from server.lab.models import Session
from server.reports.models import Delivery, Report
from server.reports.outbox import compose_report, send_delivery
from tests.builders import build_comparison, build_finding, build_list, build_series, build_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True


def at_once(*acts: Callable[[], object]) -> None:
    start = threading.Barrier(len(acts))
    errors: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        connection.ensure_connection()
        start.wait()
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (shown by the test)
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[act]) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def regressed() -> Finding:
    series = build_series(build_list(moderated=False))
    build_comparison(build_session(series, state=Session.State.DONE), Verdict.REGRESSED)
    return build_finding(series)


def test_workers_that_compose_at_once_write_one_report() -> None:
    finding = regressed()
    at_once(*[lambda: compose_report(finding_id=finding.pk)] * 4)
    assert Report.objects.count() == 1
    assert Delivery.objects.count() == 1
    assert Transition.objects.filter(subject="report", after="approved").count() == 1


def test_workers_that_send_at_once_send_one_mail() -> None:
    report = compose_report(finding_id=regressed().pk)
    assert report is not None
    at_once(*[lambda: send_delivery(delivery_id=report.delivery.pk)] * 4)
    assert len(mail.outbox) == 1
    assert Delivery.objects.get().tries == 1
    assert Transition.objects.filter(subject="delivery", after="sending").count() == 1


def test_cap_holds_when_many_mails_are_sent_at_once(settings: Settings) -> None:
    settings.MAIL_HOURLY_CAP = 1
    ids = []
    for _ in range(6):
        report = compose_report(finding_id=regressed().pk)
        assert report is not None
        ids.append(report.delivery.pk)

    at_once(*[partial(send_delivery, delivery_id=delivery_id) for delivery_id in ids])
    assert len(mail.outbox) == 1
