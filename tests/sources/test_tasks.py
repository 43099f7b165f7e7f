"""The queue `sources`: thin tasks that wake each other by name."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest_django.fixtures import Settings

from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.sources.applying import application
from server.sources.archives import archive
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series, Tree
from server.sources.series.formation import group_stale
from tests.sources.posting import DIFF, Archive, Upstream, deliver, mail, two_patches
from workers import sources

Sent = list[tuple[str, tuple[int | str, ...]]]
pytestmark = pytest.mark.django_db(transaction=True)


def test_polls_wake_one_fetch_for_each_source_that_is_due(tree: Tree, linux_mm: MailingList, sent_tasks: Sent) -> None:
    sources.poll_trees()
    sources.poll_lists()
    sources.poll_trees()
    assert sent_tasks == [("sources.fetch_tree", (tree.pk,)), ("sources.read_list", (linux_mm.pk,))]


def test_disabled_and_deleted_sources_are_left_alone(tree: Tree, linux_mm: MailingList) -> None:
    Tree.objects.update(enabled=False)
    sources.fetch_tree(tree.pk)
    sources.read_list(linux_mm.pk + 1000)
    sources.apply(1000)
    assert Tree.objects.get().polled_at is None


def test_long_archive_wakes_its_own_next_step(
    linux_mm: MailingList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent_tasks: Sent
) -> None:
    Archive.create(tmp_path / "inbox").add(*(mail(f"{n}", message_id=f"{n}@x") for n in range(3)))
    MailingList.objects.update(url=str(tmp_path / "inbox"))
    monkeypatch.setattr(archive, "read_list", partial(archive.read_list, limit=2))
    sources.read_list(linux_mm.pk)
    assert sent_tasks == [("sources.read_list", (linux_mm.pk,))]
    sources.read_list(linux_mm.pk)
    assert len(sent_tasks) == 1
    assert Message.objects.count() == 3


def test_mail_becomes_commits_by_following_the_wake_ups(
    tree: Tree, linux_mm: MailingList, upstream: Upstream, tmp_path: Path, sent_tasks: Sent
) -> None:
    """The way of the data with nothing but tasks: those sent are run until none is left for this room."""
    Archive.create(tmp_path / "inbox").add(*upstream.mails(two_patches(upstream), "--cover-letter"))
    MailingList.objects.update(url=str(tmp_path / "inbox"))
    run: dict[str, Callable[..., None]] = {
        "fetch_tree": sources.fetch_tree,
        "read_list": sources.read_list,
        "check_series": sources.check_series,
        "apply_series": sources.apply,
    }
    sources.poll_lists()
    sources.poll_trees()
    while sent_tasks:
        name, arguments = sent_tasks.pop(0)
        room, _, verb = name.partition(".")
        if room == "sources":
            run[verb](*arguments)
    series = Series.objects.get()
    # The list was read first: the series had to wait for its tree, and the sweep finds it.
    sources.sweep()
    assert sent_tasks in ([], [("sources.apply_series", (series.pk,))])
    sources.apply(series.pk)
    series.refresh_from_db()
    assert series.state == Series.State.APPLIED


def test_temporary_failure_leaves_the_series_to_the_sweep(
    linux_mm: MailingList, upstream: Upstream, sent_tasks: Sent
) -> None:
    deliver(linux_mm, *upstream.mails(two_patches(upstream)))
    series = Series.objects.get()
    sources.apply(series.pk)
    sent_tasks.clear()
    sources.sweep()
    assert sent_tasks == [("sources.apply_series", (series.pk,))]


# Between two steps nothing is written: what is kept before one is what was kept after the one before it.
@pytest.mark.parametrize(
    ("moment", "step"),
    [
        *(("before", step) for step in ("screen_patches", "candidate_bases", "apply_mails", "keep_commits")),
        ("before", "_record_rows"),
        ("after", "_record_rows"),
    ],
)
def test_worker_killed_at_any_step_changes_nothing_in_the_end(
    linux_mm: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    sources.fetch_tree(linux_mm.tree_id or 0)
    deliver(linux_mm, *upstream.mails(two_patches(upstream)))
    series = Series.objects.get()
    real = getattr(application, step)

    def dies(*args: object, **kwargs: object) -> None:
        if moment == "after":
            real(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(application, step, dies)
    with pytest.raises(KeyboardInterrupt):
        sources.apply(series.pk)
    monkeypatch.setattr(application, step, real)
    sources.apply(series.pk)
    series.refresh_from_db()
    assert series.state == Series.State.APPLIED
    commits = [p.revision.sha for p in series.patches.all() if p.revision]
    sources.apply(series.pk)
    Series.objects.update(state=Series.State.READY, base=None, head=None)
    sources.apply(series.pk)
    assert [p.revision.sha for p in series.patches.all() if p.revision] == commits
    assert len(commits) == 2


def test_scratch_space_is_empty_afterwards(
    tree: Tree, linux_mm: MailingList, upstream: Upstream, settings: Settings
) -> None:
    sources.fetch_tree(tree.pk)
    deliver(linux_mm, *upstream.mails(two_patches(upstream)))
    sources.apply(Series.objects.get().pk)
    assert list((Path(settings.STATE_DIR) / "scratch").iterdir()) == []


def test_threads_are_grouped_in_portions_that_wake_the_next(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, sent_tasks: Sent
) -> None:
    monkeypatch.setattr(sources, "THREADS_AT_ONCE", 2)
    for number in range(3):
        store_message(mailing_list=linux_mm, raw=mail(f"[PATCH] mm: {number}", DIFF, message_id=f"{number}@x"))
    sources.group_threads()
    assert sent_tasks[-1] == ("sources.group_threads", ())
    assert Series.objects.count() == 2
    sources.group_threads()
    assert Series.objects.count() == 3
    assert [name for name, _ in sent_tasks].count("sources.group_threads") == 1


def test_senders_that_cannot_be_checked_now_are_left_to_the_sweep(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, sent_tasks: Sent
) -> None:
    store_message(mailing_list=linux_mm, raw=mail("[PATCH] mm: One", DIFF))
    group_stale()
    series = Series.objects.get()

    def away(**_kwargs: object) -> None:
        raise DomainError("dns-away", "no name server answers", permanent=False)

    monkeypatch.setattr("server.sources.trust.series_check.check_series", away)
    sources.check_series(series.pk)
    sources.check_series(series.pk + 1)
    sent_tasks.clear()
    sources.sweep()
    assert sent_tasks == [("sources.check_series", (series.pk,))]
    monkeypatch.undo()
    sources.check_series(series.pk)
    series.refresh_from_db()
    assert series.state == Series.State.READY


@pytest.fixture(autouse=True)
def rested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_rest", SimpleNamespace(until=0.0))


def test_process_rests_for_as_long_as_strangers_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is the only one, lists and trees are read meanwhile."""
    turns: list[float] = []

    def turn() -> None:
        turns.append(time.monotonic())
        time.sleep(0.2)

    monkeypatch.setattr("server.sources.trust.series_check.check_strangers", turn)
    while len(turns) < 2:
        sources.check_strangers()
    assert turns[1] - turns[0] >= 0.4


def test_series_of_strangers_are_one_task_however_many(linux_mm: MailingList, sent_tasks: Sent) -> None:
    linux_mm.proof = MailingList.Proof.DKIM
    linux_mm.save()
    for name in "abc":
        store_message(
            mailing_list=linux_mm, raw=mail(f"[PATCH] mm: {name}", DIFF, message_id=f"{name}@x", sender="eve@y")
        )
    group_stale()
    with advisory_lock("sources.trust.strangers") as free:
        assert free
        for series in Series.objects.all():
            sources.check_series(series.pk)
    sent_tasks.clear()
    sources.sweep()
    assert sent_tasks == [("sources.check_strangers", ())]
    sources.check_strangers()
    sent_tasks.clear()
    sources.sweep()
    assert sent_tasks == []
