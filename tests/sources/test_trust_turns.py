"""Strangers are checked one at a time, each in turn, and nobody else waits for them."""

from collections.abc import Callable
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError

from server.core.access.tries import OutOfBoundsError
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.reasons import Because
from server.sources.models import Message, Series, TrustedSender
from server.sources.trust import series_check
from server.sources.trust.series_check import (
    check_series,
    check_strangers,
    series_to_check,
    strangers_wait,
    trust_sender,
)
from tests.sources.posting import DIFF, mail
from tests.sources.signing import Names, posted, signed, silent

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_check_of_a_stranger_waits_while_another_one_is_checked_and_nobody_else_does() -> None:
    series = posted(signed())
    with advisory_lock("sources.trust.strangers") as free:
        assert free
        check_series(series=series, lookup=silent)
        assert (series_to_check(), strangers_wait()) == ([], True), "no sweep sends it again while others are looked at"
        check_series(series=series, lookup=Names("example.org"))
        assert check_strangers(lookup=Names("example.org")) is False
        assert Message.objects.get().authentic is None
        TrustedSender.objects.create(address="ada@example.org")
        check_series(series=series, lookup=Names("example.org"))
    series.refresh_from_db()
    assert series.state == Series.State.READY


@pytest.fixture
def put_off() -> Callable[..., list[Series]]:
    """Series of these senders, in the order of their coming, that were put off."""

    def post(*senders: str) -> list[Series]:
        made = [
            posted(mail("[PATCH] x", f"{DIFF}{n}\n", message_id=f"{n}@x"), sender=sender)
            for n, sender in enumerate(senders)
        ]
        with advisory_lock("sources.trust.strangers") as free:
            assert free
            for series in made:
                check_series(series=series, lookup=silent)
        return made

    return post


@pytest.mark.django_db(transaction=True)
def test_strangers_take_turns_by_domain_newest_and_oldest_of_each_first(
    put_off: Callable[..., list[Series]], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = put_off("bo@c.net", "a@d1.eve.org", "b@d2.eve.org", "c@d3.eve.org", "cy@c.net")
    looked_at: list[int] = []
    real = series_check._settle

    def settle(series: Series, *more: Any) -> None:
        looked_at.append(series.pk)
        real(series, *more)

    monkeypatch.setattr(series_check, "_settle", settle)
    assert check_strangers(lookup=silent) is False
    assert [[s.pk for s in many].index(pk) for pk in looked_at] == [4, 3, 1, 0, 2]
    assert not strangers_wait()
    assert {s.reason_code for s in Series.objects.all()} == {Because.NOT_TRUSTED}


@pytest.mark.django_db(transaction=True)
def test_turn_ends_in_time_and_what_is_left_is_told(put_off: Callable[..., list[Series]]) -> None:
    put_off("bo@c.net", "a@eve.org")
    assert check_strangers(lookup=silent, seconds=0) is True
    assert strangers_wait()


@pytest.mark.django_db(transaction=True)
def test_stranger_whose_check_fails_keeps_no_other_waiting(
    put_off: Callable[..., list[Series]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = put_off("bo@c.net", "a@eve.org")
    real = series_check._settle

    def settle(series: Series, *more: Any) -> None:
        if series.pk == second.pk:
            raise ValueError("some text that nobody thought of")
        real(series, *more)

    monkeypatch.setattr(series_check, "_settle", settle)
    check_strangers(lookup=silent)
    for series in (first, second):
        series.refresh_from_db()
        assert series.reason_code == Because.NOT_TRUSTED
    assert second.reason.startswith("the check of its senders failed")
    assert not strangers_wait()


@pytest.mark.django_db(transaction=True)
def test_stranger_whose_check_takes_more_than_a_worker_has_comes_last_and_fails(
    put_off: Callable[..., list[Series]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, slow = put_off("bo@c.net", "a@eve.org")
    real, tried = series_check._settle, []

    def settle(series: Series, *more: Any) -> None:
        tried.append(series.pk)
        if series.pk == slow.pk:
            raise SoftTimeLimitExceeded
        real(series, *more)

    monkeypatch.setattr(series_check, "_settle", settle)
    for _ in range(3):
        with pytest.raises(OutOfBoundsError):
            check_strangers(lookup=silent)
    assert tried == [slow.pk, usual.pk, slow.pk, slow.pk]
    slow.refresh_from_db()
    assert slow.reason.startswith("the check of its senders failed")
    assert not strangers_wait()


@pytest.mark.django_db(transaction=True)
def test_stranger_who_was_checked_before_gets_another_turn(put_off: Callable[..., list[Series]]) -> None:
    (series,) = put_off("a@eve.org")
    check_strangers(lookup=silent)
    with advisory_lock("sources.trust.strangers") as free:
        assert free
        check_series(series=series, lookup=silent)
    assert strangers_wait()
    check_strangers(lookup=silent)
    series.refresh_from_db()
    assert (series.reason_code, strangers_wait()) == (Because.NOT_TRUSTED, False)


@pytest.mark.django_db(transaction=True)
def test_trouble_that_passes_leaves_a_stranger_his_turn(
    put_off: Callable[..., list[Series]], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off("bo@c.net")

    def busy(*_: Any) -> None:
        raise DomainError("busy", "others are at work there", permanent=False)

    monkeypatch.setattr(series_check, "_settle", busy)
    check_strangers(lookup=silent)
    assert strangers_wait()

    def gone(*_: Any) -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(series_check, "_settle", gone)
    with pytest.raises(OperationalError):
        check_strangers(lookup=silent)
    assert strangers_wait()


@pytest.mark.django_db(transaction=True)
def test_sender_who_becomes_trusted_waits_for_no_turn(put_off: Callable[..., list[Series]]) -> None:
    (series,) = put_off("ada@example.org")
    trust_sender(address="ada@example.org")
    assert series_to_check() == [series.pk]
