"""Remotes that fail in each of the ways that remotes fail."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from server.core import clock
from server.core.programs.sandbox import Limits
from server.sources import polls
from server.sources.mirror import mirror, old_ref
from server.sources.models import Branch, Tree
from server.sources.polls import is_due, next_try
from server.sources.trees import fetch
from server.sources.trees.fetch import fetch_tree, list_remote
from tests.sources.posting import Upstream
from tests.sources.serving import git_daemon

Talk = Callable[[socket.socket], None]


@contextmanager
def server(talk: Talk) -> Iterator[int]:
    """A port at which every caller is handled by `talk`."""
    ended = threading.Event()

    def handle(caller: socket.socket) -> None:
        with caller:
            try:
                talk(caller)
                ended.wait(10)
            except OSError:
                return

    def serve() -> None:
        while not ended.is_set():
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(caller,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


def hang(_caller: socket.socket) -> None:
    pass


def garbage(caller: socket.socket) -> None:
    caller.recv(1000)
    caller.sendall(b"\x00\xff garbage \x1b[2J" * 100)
    caller.shutdown(socket.SHUT_WR)


def hang_up(caller: socket.socket) -> None:
    caller.shutdown(socket.SHUT_RDWR)


def trickle(caller: socket.socket) -> None:
    """Refs without end, one small one after the other."""
    sent = 0
    while True:
        line = f"{sent:040x} refs/heads/branch-{sent}\n".encode()
        caller.sendall(f"{len(line) + 4:04x}".encode() + line)
        sent += 1
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (hang, "git ls-remote took longer than 0.5 s"),
        (garbage, "git ls-remote: fatal: protocol error"),
        # git may not have asked yet: then the pipe is broken.
        (hang_up, "git ls-remote"),
        (trickle, "git ls-remote took longer than 0.5 s"),
    ],
)
def test_remote_that_talks_nonsense_harms_only_its_own_tree(
    fetched: Tree, talk: Talk, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(talk) as port, monkeypatch.context() as patience:
        # Only those that never end get little: a busy machine must not fail the test.
        patience.setattr(fetch, "LIST_SECONDS", 0.5 if talk in {hang, trickle} else 20.0)
        bad = Tree.objects.create(name="bad", url=f"git://127.0.0.1:{port}/x.git", branch_patterns=["*"])
        assert fetch_tree(tree=bad) == []
    bad.refresh_from_db()
    assert said in bad.last_error
    assert bad.failures == 1
    assert fetch_tree(tree=fetched) == []
    assert [row.name for row in Tree.objects.filter(failing_since__isnull=False)] == ["bad"]


def test_endless_refs_are_cut_off_by_a_limit_of_memory(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is made small here; without it git would hold all that a server tells."""
    monkeypatch.setattr(fetch, "_LISTING", Limits(file_bytes=2**20, memory_bytes=24 * 2**20))

    def flood(caller: socket.socket) -> None:
        for start in range(0, 10**9, 1000):
            lines = [f"{n:040x} refs/heads/{'x' * 100}{n}\n" for n in range(start, start + 1000)]
            caller.sendall("".join(f"{len(line) + 4:04x}{line}" for line in lines).encode())

    with server(flood) as port:
        tree.url = f"git://127.0.0.1:{port}/x.git"
        fetch_tree(tree=tree)
    assert "git ls-remote: " in tree.last_error


def test_refused_connection_and_vanished_repository_are_told(fetched: Tree, upstream: Upstream) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    fetched.url = f"git://127.0.0.1:{port}/x.git"
    fetch_tree(tree=fetched)
    assert "Connection refused" in fetched.last_error
    with git_daemon(upstream.path.parent) as base:
        fetched.url = f"{base}/upstream"
        fetch_tree(tree=fetched)
        assert fetched.last_error == ""
        shutil.move(upstream.path, upstream.path.parent / "elsewhere")
        fetch_tree(tree=fetched)
    assert fetched.failures == 1
    assert "git ls-remote: fatal: " in fetched.last_error
    branch = Branch.objects.get()
    assert branch.deleted_at is None
    assert branch.head
    assert mirror().resolve(branch.head.sha)


def test_emptied_repository_is_a_failure_and_no_deletion(fetched: Tree, upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "--detach")
    upstream.git("branch", "-q", "-D", "master")
    fetch_tree(tree=fetched)
    assert fetched.last_error == f"{upstream.path} names no branch at all"
    assert Branch.objects.get().deleted_at is None


def test_rewritten_history_over_the_network_keeps_the_old_one(tree: Tree, upstream: Upstream) -> None:
    with git_daemon(upstream.path.parent) as base:
        tree.url = f"{base}/upstream"
        fetch_tree(tree=tree)
        left = upstream.git("rev-parse", "HEAD")
        upstream.git("commit", "-q", "--amend", "-m", "Rewritten")
        (head,) = fetch_tree(tree=tree)
    assert head.subject == "Rewritten"
    assert mirror().resolve(old_ref(left)) == left


def test_fetch_that_is_too_slow_says_how_to_do_it_by_hand(tree: Tree) -> None:
    fetch_tree(tree=tree, timeout=0.0)
    assert tree.last_error.endswith("; manage.py fetch_tree stable fetches without a limit of time")


def test_full_disk_stops_fetching_before_it_is_full(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "_ROOM", 2**60)
    fetch_tree(tree=tree)
    assert "MB of disk are left for mirror.git" in tree.last_error


def test_pack_above_the_limit_of_size_is_cut_off(
    tree: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_FETCHING", Limits(file_bytes=2000, memory_bytes=2**30))
    upstream.commit({f"file{n}": f"{n * 7919**20}\n" for n in range(200)})
    fetch_tree(tree=tree)
    assert tree.failures == 1
    assert not Branch.objects.exists()
    # What came of it would lie there for a day.
    assert not [path for path in (mirror().git_dir / "objects").rglob("*") if "tmp" in path.name or "inc" in path.name]


def test_pack_is_never_larger_than_the_room_that_is_left(
    tree: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = shutil.disk_usage(upstream.path)
    monkeypatch.setattr(polls, "_ROOM", used.free - 2**30)
    monkeypatch.setattr(polls, "_KEPT_FREE", used.free - 2000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: used)
    upstream.commit({f"file{n}": f"{n * 7919**20}\n" for n in range(200)})
    fetch_tree(tree=tree)
    assert (tree.failures, Branch.objects.count()) == (1, 0)


def test_branch_deleted_between_listing_and_fetching_is_no_failure(
    tree: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.branch_patterns = ["*"]
    upstream.git("branch", "short-lived")
    real = list_remote

    def listed(*args: object, **kwargs: object) -> fetch.Listing:
        listing = real(*args, **kwargs)  # type: ignore[arg-type]  # handed on as they came
        if "short-lived" in listing.heads:
            upstream.git("branch", "-q", "-D", "short-lived")
        return listing

    monkeypatch.setattr(fetch, "list_remote", listed)
    assert len(fetch_tree(tree=tree)) == 1
    assert tree.last_error == ""


def test_pause_doubles_with_each_failure_up_to_an_hour() -> None:
    now = clock.now()
    tree = Tree(pk=1, name="x", poll_seconds=60, polled_at=now)
    pauses = []
    for failures in range(20):
        tree.failures = failures
        pauses.append((next_try(tree) - now).total_seconds())
    assert pauses[0] == 60
    assert all(0.75 * 60 * 2**n <= pause <= 60 * 2**n for n, pause in enumerate(pauses[:6]) if n)
    assert all(2700 <= pause <= 3600 for pause in pauses[7:])
    assert len(set(pauses[7:])) > 5
    assert not is_due(tree, now + timedelta(minutes=40))
    assert is_due(tree, now + timedelta(hours=1))


def test_slow_poll_is_not_hurried_by_failures() -> None:
    now = clock.now()
    tree = Tree(pk=1, name="x", poll_seconds=7200, polled_at=now, failures=3)
    assert next_try(tree) == now + timedelta(hours=2)
