"""Requests leave at most so often, whoever sends them."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from pytest_django.fixtures import Settings

from server.lab.dispatch.jenkins.http import BURST, REQUESTS_PER_SECOND, take_turn
from server.lab.dispatch.jenkins.models import JenkinsController
from server.lab.dispatch.jenkins.values import Crowded


@pytest.fixture(autouse=True)
def controller(settings: Settings) -> None:
    settings.JENKINS_URL = "http://jenkins.test"


@pytest.mark.django_db
def test_a_burst_leaves_at_once_and_then_one_after_the_other() -> None:
    started = time.monotonic()
    for _ in range(BURST):
        take_turn()
    assert time.monotonic() - started < 1 / REQUESTS_PER_SECOND
    for _ in range(2):
        take_turn()
    assert 1.5 / REQUESTS_PER_SECOND < time.monotonic() - started < 6 / REQUESTS_PER_SECOND


@pytest.mark.django_db
def test_who_has_no_patience_is_told_and_takes_no_slot() -> None:
    for _ in range(BURST):
        take_turn()
    before = JenkinsController.objects.values_list("next_request_at", flat=True).get()
    with pytest.raises(Crowded) as caught:
        take_turn(0.0)
    assert not caught.value.maybe_done
    assert JenkinsController.objects.values_list("next_request_at", flat=True).get() == before


@pytest.mark.django_db
def test_a_mark_of_a_clock_that_was_put_back_holds_nobody() -> None:
    take_turn()
    JenkinsController.objects.update(next_request_at=Now() + timedelta(hours=5))
    take_turn(0.0)
    take_turn(0.0)


@pytest.mark.django_db(transaction=True)
def test_many_at_once_share_one_limit() -> None:
    left: list[float] = []

    def send() -> None:
        for _ in range(3):
            take_turn(20.0)
            left.append(time.monotonic())
        connection.close()

    started = time.monotonic()
    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(left) == 12
    assert time.monotonic() - started > (12 - BURST - 1) / REQUESTS_PER_SECOND
    assert sum(each - started < 0.1 for each in left) <= BURST + 1
