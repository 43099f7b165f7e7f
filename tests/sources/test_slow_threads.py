"""A thread that takes too long, or fails in a way that nobody foresaw, stops no other one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import time_machine
from celery.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, connection, transaction

from server.core import clock
from server.core.access.tries import GIVEN_UP, MOST_BEGUN, OutOfBoundsError, given_up, note_failure
from server.core.database import BUSY, advisory_lock
from server.core.errors import DomainError
from server.core.models import Begun
from server.sources.archives import archive as archives
from server.sources.archives.archive import read_list
from server.sources.messages import storage
from server.sources.messages.storage import MAIL_LOCK, lock_mail, read_mail, store_message
from server.sources.models import MailingList, Message, Series, Thread
from server.sources.series import formation
from server.sources.series.formation import group_stale, write_versions
from server.sources.series.thread_rows import ThreadRows
from tests.sources.posting import DIFF, Archive, mail
from workers import sources

WRITE = "server.sources.series.formation.write_versions"


@pytest.fixture
def threads(linux_mm: MailingList) -> list[int]:
    """Three mails that have nothing to do with each other."""
    stored = [store_message(mailing_list=linux_mm, raw=mail(f"[PATCH] mm: {n}", DIFF, message_id=n)) for n in NAMES]
    return [message.thread_id for message in stored if message.thread_id]


NAMES = ("1@x", "2@x", "3@x")


def failing(monkeypatch: pytest.MonkeyPatch, fail: Callable[[ThreadRows], None], name: str = "1@x") -> list[str]:
    """Grouping the thread of one mail fails; returns, in time, the mails whose threads were begun."""
    begun: list[str] = []

    def writes(rows: ThreadRows) -> bool:
        begun.extend(m.message_id for m in rows.messages.values())
        if name in begun[-1:]:
            fail(rows)
        return write_versions(rows)

    monkeypatch.setattr(WRITE, writes)
    return begun


def is_slow(rows: ThreadRows) -> None:
    rows.end = 0.0


def is_broken(_rows: ThreadRows) -> None:
    raise RuntimeError("a rule that nobody foresaw")


def is_refused(_rows: ThreadRows) -> None:
    raise DomainError("wrong", "a step that may not be")


def stale() -> list[int]:
    return list(Thread.objects.filter(stale=True).order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("fail", [is_slow, is_broken, is_refused])
def test_thread_that_fails_comes_last_and_is_given_up_with_its_third_failure(
    threads: list[int], monkeypatch: pytest.MonkeyPatch, fail: Callable[[ThreadRows], None]
) -> None:
    begun = failing(monkeypatch, fail)
    group_stale()
    assert (Series.objects.count(), stale()) == (2, threads[:1])
    group_stale()
    assert begun == [*NAMES]
    Thread.objects.update(stale=True)
    for tries in (2, 3):
        with time_machine.travel(clock.now() + timedelta(minutes=6 * tries)):
            group_stale()
            assert (begun.count("1@x"), begun[-1]) == (tries, "1@x")
    with time_machine.travel(clock.now() + timedelta(hours=1)):
        group_stale()
        assert begun.count("1@x") == 3
        assert [row.task for row in given_up()] == [f"sources.group_thread {threads[0]}"]
        assert Message.objects.get(message_id="1@x").reason.startswith("could not be made part of a series: ")
        assert set(Message.objects.exclude(message_id="1@x").values_list("reason", flat=True)) == {""}
    monkeypatch.undo()
    with time_machine.travel(clock.now() + GIVEN_UP + timedelta(hours=1)):
        group_stale()
    assert (Series.objects.count(), stale(), Message.objects.get(message_id="1@x").reason) == (3, [], "")


def test_thread_that_failed_once_is_as_good_as_new_when_it_was_grouped(
    threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, is_slow, "2@x")
    group_stale()
    assert stale() == [threads[1]]
    monkeypatch.undo()
    with time_machine.travel(clock.now() + timedelta(minutes=6)):
        assert group_stale(limit=1) == 1
    assert (Series.objects.count(), Begun.objects.count()) == (3, 0)


@pytest.mark.parametrize("error", [SoftTimeLimitExceeded, MemoryError])
def test_end_of_a_worker_s_means_is_counted_to_the_thread_and_not_to_the_list_or_task(
    threads: list[int], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def has_no_more(_rows: ThreadRows) -> None:
        raise error

    begun = failing(monkeypatch, has_no_more)
    sources.group_threads()
    assert begun == ["1@x"]
    sources.group_threads()
    assert (begun, Series.objects.count()) == ([*NAMES], 2)


def test_grouping_begins_nothing_when_its_time_is_over(threads: list[int]) -> None:
    assert group_stale(seconds=0) == 0
    assert stale() == threads


@pytest.mark.django_db(transaction=True)
def test_whoever_waits_for_the_lock_of_the_mails_gives_way_and_comes_again(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_message(mailing_list=linux_mm, raw=mail("[PATCH] mm: One", DIFF))
    monkeypatch.setattr(storage, "_PATIENCE_SECONDS", 0.2)
    with advisory_lock(MAIL_LOCK) as free:
        assert free
        with pytest.raises(DomainError, match=r"others have been at work there \(sources.mail\)") as raised:
            store_message(mailing_list=linux_mm, raw=mail("[PATCH] mm: Two", DIFF, message_id="2@x"))
        assert (raised.value.code, raised.value.permanent) == (BUSY, False)
        assert group_stale() == 0
    assert not Begun.objects.exists()
    assert group_stale() == 1


@pytest.mark.django_db(transaction=True)
def test_patience_for_the_lock_is_none_for_what_comes_after_it() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        lock_mail()
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)


@pytest.mark.django_db(transaction=True)
def test_list_whose_mails_wait_for_others_has_not_failed(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(mail("[PATCH] mm: One", DIFF))
    monkeypatch.setattr(storage, "_PATIENCE_SECONDS", 0.2)
    with advisory_lock(MAIL_LOCK):
        assert read_list(mailing_list=linux_mm).error == ""
    assert (linux_mm.failures, "sources.mail" in linux_mm.last_error) == (0, True)
    assert read_list(mailing_list=linux_mm).stored == 1
    assert (linux_mm.last_error, Series.objects.count()) == ("", 1)


@pytest.mark.parametrize(
    ("cause", "noted"), [(psycopg.OperationalError("gone"), 0), (psycopg.errors.QueryCanceled(), 1)]
)
@pytest.mark.usefixtures("threads")
def test_database_that_goes_away_is_no_failure_of_a_thread(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, noted: int
) -> None:
    def fail(_rows: ThreadRows) -> None:
        raise OperationalError("no answer") from cause

    failing(monkeypatch, fail)
    if noted:
        group_stale()
    else:
        with pytest.raises(OperationalError):
            group_stale()
    assert Begun.objects.count() == noted


@pytest.mark.parametrize("failures", [1, MOST_BEGUN])
def test_thread_that_failed_takes_nobody_elses_mails(linux_mm: MailingList, failures: int) -> None:
    """Its owner names a mail that he writes later, as an answer to a letter that he has read by then."""
    evil = store_message(
        mailing_list=linux_mm,
        raw=mail("[PATCH] x", DIFF, message_id="link@evil", parent="bridge@evil", sender="e@evil"),
    )
    store_message(
        mailing_list=linux_mm, raw=mail("[PATCH] y", DIFF, message_id="more@evil", parent="link@evil", sender="e@evil")
    )
    for _ in range(failures):
        note_failure(f"{storage.FAILED_THREAD}{evil.thread_id}")
    store_message(mailing_list=linux_mm, raw=mail("[PATCH 0/2] mm: Two", "Why.\n", message_id="0@x"))
    bridge = mail("[PATCH] z", DIFF, message_id="bridge@evil", parent="0@x", sender="e@evil")
    store_message(mailing_list=linux_mm, raw=bridge)
    for n in (1, 2):
        raw = mail(f"[PATCH {n}/2] mm: {n}", DIFF, message_id=f"{n}@x", parent="0@x")
        store_message(mailing_list=linux_mm, raw=raw)
    group_stale()
    ours = Message.objects.filter(message_id__in=["0@x", "1@x", "2@x"]).values_list("thread", flat=True)
    assert len(set(ours)) == 1
    assert evil.thread_id not in ours
    assert Series.objects.get(root_message_id="0@x").state == Series.State.HELD


def test_failures_of_one_moment_are_one(linux_mm: MailingList) -> None:
    """Several processes may have begun the same thread."""
    thread = store_message(mailing_list=linux_mm, raw=mail("[PATCH] x", DIFF)).thread_id
    with time_machine.travel("2026-11-20 12:00Z", tick=False) as traveller:
        for minutes, times in ((0, 1), (1, 1), (5, 2), (0, 2), (6, 3)):
            traveller.shift(timedelta(minutes=minutes))
            formation._note_failure(thread or 0, "it is slow")
            assert Begun.objects.count() == times


def test_thread_that_took_long_rests_and_is_made_once_for_all_that_came_meanwhile(
    threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each series of it that is checked has all of it made anew."""
    monkeypatch.setattr(formation, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(formation, "_REST", 100_000)
    with time_machine.travel(clock.now(), tick=False) as now:
        assert group_stale() == 3
        Thread.objects.filter(pk=threads[0]).update(stale=True)
        assert group_stale() == 0
        now.shift(formation._LONGEST_REST)
        assert group_stale() == 1
    assert not Thread.objects.filter(stale=True).exists()


def test_thread_that_was_quick_never_rests(threads: list[int]) -> None:
    for _ in range(3):
        assert group_stale() == 3
        Thread.objects.filter(pk__in=threads).update(stale=True)


def test_mail_that_ends_worker_after_worker_is_passed_over_and_says_why(
    archive: Archive, linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = mail("[PATCH] mm: heavy", "x" * 70_000, message_id="heavy@x")
    archive.add(heavy, mail("[PATCH] mm: next", DIFF, message_id="next@x"))

    def reading(raw: bytes, **told: Any) -> Any:
        if raw == heavy:
            raise SoftTimeLimitExceeded
        return read_mail(raw, **told)

    monkeypatch.setattr(archives, "read_mail", reading)
    for _ in range(MOST_BEGUN):
        with pytest.raises(OutOfBoundsError):
            read_list(mailing_list=linux_mm)
    read_list(mailing_list=linux_mm)
    unread, after = Message.objects.order_by("pk")
    assert (unread.kind, after.message_id) == ("unusable", "next@x")
    assert unread.reason == "reading it took more than a worker has, 3 times"
