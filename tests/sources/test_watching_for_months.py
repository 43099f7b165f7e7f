"""What goes wrong once in months, and must not need a hand: clocks, disks, kills, errors that nobody foresaw."""

import os
import shutil
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from server.core import clock
from server.core.programs.git import Repository
from server.core.programs.git import run as git_run
from server.core.programs.sandbox import Limits
from server.sources import mirror as mirrors
from server.sources import polls, upkeep
from server.sources.archives import archive as archives_archive
from server.sources.archives import epochs
from server.sources.archives.archive import read_list
from server.sources.archives.epochs import UNCLEAN, archive_folder
from server.sources.management.commands import watch_list
from server.sources.mirror import bare_repository
from server.sources.models import Epoch, MailingList, Message, Tree, WantedRevision
from server.sources.polls import is_due
from server.sources.trees import fetch
from server.sources.trees.fetch import fetch_tree
from server.sources.upkeep import tend_repository
from tests.sources.letters import letters, subjects
from tests.sources.posting import Archive, Upstream


def copy_of(state_dir: Path, epoch: int = 0) -> Path:
    return state_dir / "lists" / "linux-mm" / f"{epoch}.git"


def test_error_that_nobody_foresaw_is_an_alarm_and_slows_the_polls(
    tree: Tree, linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mock(side_effect=RuntimeError("http://u:s3cret@host/ is odd"))
    monkeypatch.setattr(fetch, "_look", broken)
    monkeypatch.setattr(archives_archive, "find_epochs", broken)
    with pytest.raises(RuntimeError):
        fetch_tree(tree=tree)
    with pytest.raises(RuntimeError):
        read_list(mailing_list=linux_mm)
    for source in (Tree.objects.get(), MailingList.objects.get()):
        assert (source.failures, source.last_error) == (1, "RuntimeError: http://host/ is odd")
        assert source.failing_since


def test_fetch_by_hand_waits_for_the_worker_that_fetches(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(**connection.get_connection_params()) as worker:
        worker.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"sources.tree.{tree.pk}"])
        assert fetch_tree(tree=tree) == []
        timer = threading.Timer(0.3, worker.execute, ["SELECT pg_advisory_unlock_all()"])
        timer.start()
        call_command("fetch_tree", "stable")
        timer.join()
    captured = capsys.readouterr()
    assert "1 branches moved" in captured.out
    assert "another process fetches stable" in captured.err


def test_watcher_survives_an_error_that_nobody_foresaw(linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch) -> None:
    linux_mm.url = "/nowhere"
    linux_mm.save()
    monkeypatch.setattr(archives_archive, "find_epochs", Mock(side_effect=RuntimeError("odd")))
    monkeypatch.setattr(connection, "close", Mock())
    watcher = watch_list.Command()
    watcher.ending = threading.Event()
    assert watcher._round("linux-mm") > 30
    assert MailingList.objects.get().last_error == "RuntimeError: odd"


def test_file_that_nobody_may_delete_is_no_reason_to_neglect_other_repositories(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (0, 1):
        bare_repository(copy_of(state_dir, number))
    tended = Mock(side_effect=[PermissionError("not yours"), []])
    monkeypatch.setattr(upkeep, "tend_repository", tended)
    upkeep.tend_all()
    assert tended.call_count == 2


def test_folder_that_may_not_be_read_is_an_error_of_the_list(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        archives_archive, "find_epochs", Mock(side_effect=PermissionError(13, "Permission denied", "/inbox"))
    )
    assert "Permission denied" in read_list(mailing_list=linux_mm).error
    assert MailingList.objects.get().failures == 1


def test_round_that_is_out_of_time_ends_without_an_error_and_goes_on(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(2))
    result = read_list(mailing_list=linux_mm, timeout=0.0)
    assert (result.more, result.error, result.stored) == (True, "", 0)
    assert (linux_mm.failures, linux_mm.last_error) == (0, "")
    assert read_list(mailing_list=linux_mm).stored == 2


def test_clock_that_was_ahead_does_not_stop_polls_for_as_long() -> None:
    now = clock.now()
    ahead = MailingList(pk=1, name="x", poll_seconds=60, polled_at=now + timedelta(days=400))
    assert is_due(ahead, now)
    assert not is_due(MailingList(pk=1, name="x", poll_seconds=60, polled_at=now + timedelta(seconds=2)), now)


def test_heads_wanted_while_a_clock_was_ahead_do_not_count_for_today(fetched: Tree, upstream: Upstream) -> None:
    WantedRevision.objects.update(created_at=clock.now() + timedelta(days=400))
    fetched.heads_per_day = 1
    upstream.commit({"README": "more\n"})
    fetch_tree(tree=fetched)
    assert WantedRevision.objects.count() == 2


def unpack(copy: Repository) -> None:
    """Each object in a file of its own."""
    for pack in (copy.git_dir / "objects" / "pack").glob("*.pack"):
        packed = pack.read_bytes()
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink()
        copy.output("unpack-objects", "-q", stdin=packed)


def test_mail_that_the_disk_lost_is_not_passed_over(linux_mm: MailingList, archive: Archive, state_dir: Path) -> None:
    archive.add(*letters(2))
    read_list(mailing_list=linux_mm, stop=lambda: True)
    copy = bare_repository(copy_of(state_dir))
    blob = copy.output("rev-parse", "refs/tidemark/head~1:m").decode().strip()
    unpack(copy)
    (copy.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    assert f"has lost mail {blob}" in read_list(mailing_list=linux_mm).error
    assert (subjects(), Epoch.objects.get().last_commit) == ([], "")
    shutil.rmtree(copy.git_dir)
    read_list(mailing_list=linux_mm)
    assert subjects() == ["Letter 0", "Letter 1"]


def test_full_disk_stops_lists_before_it_is_full(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(*letters(1))
    monkeypatch.setattr(polls, "_ROOM", 2**60)
    assert "MB of disk are left for 0.git" in read_list(mailing_list=linux_mm).error


def test_pack_of_an_archive_that_broke_off_is_removed(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(*letters(150))
    monkeypatch.setattr(epochs, "_FETCH_LIMITS", Limits(file_bytes=2000, memory_bytes=2**30))
    assert "fetch" in read_list(mailing_list=linux_mm).error
    packs = archive_folder(linux_mm.name) / "0.git" / "objects" / "pack"
    assert packs.is_dir()
    assert list(packs.iterdir()) == []


def test_newest_epoch_that_is_gone_is_complained_about(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    archive.add(*letters(1))
    Archive.create(inbox, number=1).add(*letters(1, start=1))
    read_list(mailing_list=linux_mm)
    shutil.rmtree(inbox / "git" / "1.git")
    read_list(mailing_list=linux_mm)
    assert linux_mm.last_error == "epoch 1, read before, is not in the archive any more"
    assert linux_mm.failures == 0


def test_tree_is_not_led_to_another_host(tree: Tree) -> None:
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Host"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_port}{self.path}")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    tree.url = f"http://127.0.0.1:{server.server_port}/x.git"
    fetch_tree(tree=tree)
    server.shutdown()
    thread.join()
    server.server_close()
    assert set(asked) == {f"127.0.0.1:{server.server_port}"}
    assert "302" in tree.last_error


def test_repository_whose_making_was_cut_off_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = git_run

    def cut_off(*args: str, cwd: Path) -> None:
        real(*args, cwd=cwd)
        raise KeyboardInterrupt

    with monkeypatch.context() as killing:
        killing.setattr(mirrors, "run", cut_off)
        with pytest.raises(KeyboardInterrupt):
            bare_repository(tmp_path / "x.git")
    repository = bare_repository(tmp_path / "x.git")
    assert repository.output("config", "uploadpack.allowAnySHA1InWant") == b"true\n"
    assert repository.output("config", "gc.auto") == b"0\n"
    assert repository.output("rev-parse", "--is-bare-repository") == b"true\n"


def test_purged_mail_that_took_too_long_to_clean_away_goes_at_upkeep(
    linux_mm: MailingList, archive: Archive, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add(*letters(3))
    read_list(mailing_list=linux_mm)
    gone = Message.objects.get(message_id="letter-1@example.org").blob
    mails = letters(3)
    archive.rewrite(mails[0], mails[2])
    monkeypatch.setattr(archives_archive, "_CLEAN_SECONDS", 0.0)
    assert read_list(mailing_list=linux_mm).deleted == 1
    assert linux_mm.last_error == ""
    copy = bare_repository(copy_of(state_dir))
    held = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    assert gone in copy.output(*held).decode()
    assert "let go of purged mails" not in tend_repository(copy)
    then = time.time() - 26 * 3600
    # The lock that the killed gc may have left among them.
    for path in copy.git_dir.rglob("*"):
        os.utime(path, (then, then))
    assert "let go of purged mails" in tend_repository(copy)
    assert gone not in copy.output(*held).decode()
    assert Message.objects.get(message_id="letter-0@example.org").blob in copy.output(*held).decode()
    assert not (copy.git_dir / UNCLEAN).exists()
