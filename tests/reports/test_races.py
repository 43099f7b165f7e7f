"""Several workers at once, each on a connection of its own."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import Finding, Verdict
from server.lab.models import Session
from server.reports.models import Delivery, Report, Subscription
from server.reports.outbox import send_delivery
from server.reports.renewal import renew
from server.reports.subscribers.subscription import change_subscription, subscribe
from server.reports.writing import compose_report, tell_news
from tests.builders import because, build_comparison, build_finding, build_list, build_series, build_session

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


def told_and_withdrawn() -> Finding:
    """Its mail left, and what it says does not hold."""
    finding = regressed()
    tell_news(finding_id=finding.pk)
    assert send_delivery(delivery_id=Delivery.objects.get().pk)
    finding.refresh_from_db()
    finding.advance(Finding.State.INVALID, because("noise"), actor="ada")
    return finding


def test_workers_that_tell_the_same_news_at_once_take_a_mail_back_once() -> None:
    finding = told_and_withdrawn()
    at_once(*[lambda: tell_news(finding_id=finding.pk)] * 4)
    assert Report.objects.filter(kind=Report.Kind.RETRACTION).count() == 1
    assert Delivery.objects.count() == 2


def test_what_is_withdrawn_while_it_is_sent_is_either_not_sent_or_taken_back() -> None:
    for _ in range(8):
        finding = regressed()
        tell_news(finding_id=finding.pk)
        delivery = Delivery.objects.get(report__finding=finding)

        def withdraw(pk: int = finding.pk) -> None:
            Finding.objects.get(pk=pk).advance(Finding.State.INVALID, because("noise"), actor="ada")
            tell_news(finding_id=pk)

        at_once(partial(send_delivery, delivery_id=delivery.pk), withdraw)
        tell_news(finding_id=finding.pk)
        delivery.refresh_from_db()
        retracted = Report.objects.filter(finding=finding, kind=Report.Kind.RETRACTION).exists()
        finding.refresh_from_db()
        if finding.state == Finding.State.INVALID:
            assert retracted == (delivery.state == Delivery.State.SENT)


def test_text_that_is_renewed_while_it_is_sent_is_what_was_sent() -> None:
    for _ in range(8):
        finding = regressed()
        tell_news(finding_id=finding.pk)
        report = Report.objects.get(finding=finding)
        Report.objects.filter(pk=report.pk).update(body="older\n", composed="older\n")
        before = len(mail.outbox)
        at_once(partial(send_delivery, delivery_id=report.delivery.pk), partial(renew, report))
        send_delivery(delivery_id=report.delivery.pk)
        report.refresh_from_db()
        assert [str(one.body) for one in mail.outbox[before:]] == [report.body]


def test_what_is_asked_for_twice_at_once_is_one_subscription_whose_secret_is_told_once() -> None:
    ada = User.objects.create_user("ada", "ada@example.org")
    made: list[tuple[Subscription, bool]] = []
    wanted = {"way": "webhook", "url": "https://hooks.example.org/x"}
    at_once(*[lambda: made.append(subscribe(ada, wanted))] * 6)
    assert {row for row, _ in made} == {Subscription.objects.get()}
    assert [is_new for _, is_new in made].count(True) == 1


def test_two_that_are_changed_to_the_same_at_once_stay_two() -> None:
    ada = User.objects.create_user("ada", "ada@example.org")
    rows = [subscribe(ada, {"path": path})[0] for path in ("mm/", "fs/", "net/", "lib/")]
    refused: list[str] = []

    def change(row: Subscription) -> None:
        try:
            change_subscription(row, {"path": "kernel/"})
        except DomainError as error:
            refused.append(error.code)

    at_once(*[partial(change, row) for row in rows])
    assert refused == ["conflict"] * 3
    assert Subscription.objects.filter(path="kernel/").count() == 1
