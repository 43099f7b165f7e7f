"""What no patch is to blame for does not refuse it, and what ends the worker does not come again for ever."""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.core.programs import sandbox
from server.core.programs.git import Completed, GitError, Repository
from server.core.reasons import Because
from server.sources.applying import application, git_am, prerequisites
from server.sources.applying.application import apply_series, series_to_apply
from server.sources.models import MailingList, Series, Tree
from tests.builders import build_list, build_series
from tests.sources.applying import store
from tests.sources.posting import Upstream, two_patches

S = Series.State


class Ended(BaseException):
    """Stands for a limit of time or memory that takes the worker with it."""


class Disk(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def series(fetched: Tree, linux_mm: MailingList, upstream: Upstream) -> Iterator[Series]:
    series = store(linux_mm, upstream.mails(two_patches(upstream)))
    assert series.state == S.READY
    yield series
    sandbox.require_sandbox.cache_clear()


def later(series: Series) -> None:
    Series.objects.filter(pk=series.pk).update(tried_at=clock.now() - timedelta(minutes=30))


def test_series_that_ends_its_worker_each_time_is_refused(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def end(*_args: object) -> None:
        tries.append(1)
        raise Ended

    monkeypatch.setattr(application, "apply_ready", end)
    for _ in range(6):
        later(series)
        with suppress(Ended):
            apply_series(series=series)
    series.refresh_from_db()
    assert (len(tries), series.state) == (3, S.REFUSED)
    assert series.reason == "tried 3 times, and each time the worker was ended before git had done its work"


def test_worker_that_was_ended_once_is_followed_at_once(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_args: object) -> None:
        raise Ended

    with monkeypatch.context() as patched, suppress(Ended):
        patched.setattr(application, "apply_ready", end)
        apply_series(series=series)
    apply_series(series=series)
    assert (series.state, series.failures) == (S.APPLIED, 0), series.reason


def test_full_disk_refuses_nothing(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _path: Disk(10**12, 10**12, 10**8))
        with pytest.raises(DomainError, match="less than 512 MB of disk are left") as caught:
            apply_series(series=series)
    assert not caught.value.permanent
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 0)
    later(series)
    apply_series(series=series)
    assert series.state == S.APPLIED, series.reason


def test_what_waits_for_long_is_looked_at_rarely_and_never_hides_what_is_new(db: None) -> None:
    """A host without a sandbox, or a tree that is not fetched yet: each sweep must not try all of them again."""
    now = clock.now()
    mailing_list = build_list()
    trouble = {"state": S.READY, "reason_code": Because.TRIED_AGAIN}
    since, ago = now - timedelta(hours=1), timedelta(minutes=1)
    old = [build_series(mailing_list, total=1, state_since=since, tried_at=now - ago, **trouble) for _ in range(3)]
    assert series_to_apply() == []
    new = build_series(mailing_list, total=1, state=S.READY)
    assert series_to_apply() == [new.pk]
    Series.objects.filter(pk=old[1].pk).update(tried_at=now - 7 * ago)
    assert series_to_apply() == [new.pk, old[1].pk]
    waiting = {"state": S.READY, "reason_code": Because.WAITS_FOR_PREREQUISITE}
    waits = build_series(mailing_list, total=1, tried_at=now - 2 * ago, **waiting)
    assert series_to_apply() == [new.pk, old[1].pk, waits.pk], "another series came since"
    Series.objects.exclude(pk=waits.pk).delete()
    Series.objects.update(state_since=since)
    assert series_to_apply() == []


def test_disk_that_fills_while_mails_are_read_refuses_nothing(
    series: Series, monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    """A limit for files stands for the end of the disk: git and the shell fail to write what they read."""
    monkeypatch.setattr(sandbox, "_FILE_BYTES", 64)
    with pytest.raises(GitError, match="the mails cannot be read"):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 1)
    assert list((state_dir / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    "said",
    [
        "fatal: could not write to '.git/rebase-apply/author-script': No space left on device\n",
        "bwrap: Creating new namespace failed: Resource temporarily unavailable\n",
    ],
)
def test_trouble_of_the_system_is_no_fault_of_the_patch(
    series: Series, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    run = Repository.run

    def failing(self: Repository, *args: str, **options: Any) -> Completed:
        return Completed(128, b"", said) if args[0] == "am" else run(self, *args, **options)

    monkeypatch.setattr(Repository, "run", failing)
    with pytest.raises(GitError, match="git am: "):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.reason) == (S.READY, f"tried again soon: git am: {said.strip()}")


@pytest.mark.parametrize(
    ("doing", "reason"),
    [
        ("kill -9 $PPID", "was ended by the system (Killed)"),
        ("echo 'Applying: mm: One'; kill -9 $PPID", "was ended by the system (Killed)"),
        ("exit 3", "git am ended with exit status 3 and without a word"),
    ],
)
def test_git_that_was_ended_or_said_nothing_refuses_no_series(
    series: Series, monkeypatch: pytest.MonkeyPatch, doing: str, reason: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(git_am, "_AM", ("-c", f"alias.die=!f() {{ {doing}; }}; f", "die"))
        with pytest.raises(GitError, match=re.escape(reason)):
            apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 1), series.reason
    later(series)
    apply_series(series=series)
    assert series.state == S.APPLIED, series.reason


def test_history_that_was_not_read_to_its_end_holds_not_just_what_was_read(
    fetched: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = fetched.branches.get(name="master").head
    assert head is not None
    assert prerequisites.ids_in_history(head.sha, ())
    with pytest.raises(GitError, match="git log of 000000000000: fatal"):
        prerequisites.ids_in_history("0" * 40, ())
    monkeypatch.setattr(prerequisites, "_LOG", prerequisites._LOG.replace("git --git-dir=.", "kill -9 $BASHPID; git"))
    with pytest.raises(GitError, match="bash was ended by the system"):
        prerequisites.ids_in_history(head.sha, ())
