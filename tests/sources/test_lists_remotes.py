"""Archives over HTTP, and archives that are broken."""

import functools
import gzip
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from server.sources.archives import archive as archives_archive
from server.sources.archives.archive import read_list
from server.sources.archives.epochs import EpochPlace
from server.sources.models import MailingList
from tests.sources.hostile_web import hang, serving
from tests.sources.letters import content, letters, subjects
from tests.sources.posting import NOON, Archive, git


def test_unreachable_list_is_recorded_and_recovers(linux_mm: MailingList, inbox: Path) -> None:
    assert read_list(mailing_list=linux_mm).commits == 0
    assert "no epochs in" in linux_mm.last_error
    assert linux_mm.failing_since is not None
    Archive.create(inbox).add(*letters(1))
    assert read_list(mailing_list=linux_mm).commits == 1
    recovered = MailingList.objects.get()
    assert recovered.failing_since is None
    assert recovered.last_error == ""


def test_broken_epoch_is_reported_and_does_not_stop_later_ones(
    linux_mm: MailingList, archive: Archive, inbox: Path
) -> None:
    archive.add(*letters(1))
    later = Archive.create(inbox, number=1)
    later.add(*letters(1, start=1))
    read_list(mailing_list=linux_mm)
    shutil.rmtree(archive.path / "objects")
    later.add(*letters(1, start=2))
    result = read_list(mailing_list=linux_mm)
    assert len(subjects()) == 3
    assert result.error.startswith("epoch 0: ")
    assert (linux_mm.failures, linux_mm.failing_since is not None) == (1, True)


def test_later_epoch_waits_for_one_that_was_never_read(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    """It may delete mails that come first there."""
    archive.add(*letters(1))
    Archive.create(inbox, number=1).delete(letters(1)[0])
    objects = archive.path / "objects"
    objects.rename(inbox / "away")
    assert read_list(mailing_list=linux_mm).commits == 0
    (inbox / "away").rename(objects)
    read_list(mailing_list=linux_mm)
    assert content("letter-0@example.org") == [b""]


def test_locks_of_a_killed_git_are_removed(linux_mm: MailingList, archive: Archive, state_dir: Path) -> None:
    archive.add(*letters(1))
    read_list(mailing_list=linux_mm)
    lock = state_dir / "lists" / "linux-mm" / "0.git" / "refs" / "tidemark" / "head.lock"
    lock.touch()
    archive.add(*letters(1, start=1))
    read_list(mailing_list=linux_mm)
    assert "head.lock" in linux_mm.last_error
    os.utime(lock, (NOON, NOON - 10**8))
    assert read_list(mailing_list=linux_mm).commits == 1
    assert linux_mm.last_error == ""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


class _Elsewhere(BaseHTTPRequestHandler):
    """Answers everything with a redirect, with some content, or with more than anybody needs."""

    location = ""
    content = b""

    def do_GET(self) -> None:
        self.send_response(302 if self.location else 200)
        if self.location:
            self.send_header("Location", self.location)
        self.end_headers()
        with suppress(OSError):
            for _ in range(0 if self.location else 1 if self.content else 64):
                self.wfile.write(self.content or b"x" * 2**20)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Serves tmp_path over HTTP: git's dumb protocol, as a static mirror of an archive does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def write_manifest(inbox: Path, content: bytes) -> None:
    (inbox / "manifest.js.gz").write_bytes(gzip.compress(content))


def test_manifest_names_the_epochs_over_http(linux_mm: MailingList, archive: Archive, inbox: Path, web: str) -> None:
    archive.add(*letters(2))
    git(archive.path, "update-server-info")
    write_manifest(inbox, b'{"/linux-mm/git/0.git": {"description": "x"}, "/other/git/7.git": {}, "/linux-mm": {}}')
    linux_mm.url = f"{web}/linux-mm"
    assert read_list(mailing_list=linux_mm).commits == 2
    assert linux_mm.last_error == ""


def test_archive_without_manifest_is_probed(linux_mm: MailingList, archive: Archive, web: str) -> None:
    archive.add(*letters(1))
    git(archive.path, "update-server-info")
    linux_mm.url = f"{web}/linux-mm/"
    assert read_list(mailing_list=linux_mm).commits == 1


def test_next_epoch_of_an_archive_without_manifest_is_found(
    linux_mm: MailingList, archive: Archive, inbox: Path, web: str
) -> None:
    archive.add(*letters(1))
    git(archive.path, "update-server-info")
    linux_mm.url = f"{web}/linux-mm"
    read_list(mailing_list=linux_mm)
    archive.add(*letters(1, start=1))
    later = Archive.create(inbox, number=1)
    later.add(*letters(1, start=2))
    for path in (archive.path, later.path):
        git(path, "update-server-info")
    assert read_list(mailing_list=linux_mm).commits == 2
    assert subjects() == ["Letter 0", "Letter 1", "Letter 2"]


def test_git_is_not_led_to_another_host(linux_mm: MailingList, archive: Archive, web: str) -> None:
    archive.add(*letters(1))
    git(archive.path, "update-server-info")
    elsewhere = web.replace("127.0.0.1", "localhost")

    class Redirecting(_Elsewhere):
        def do_GET(self) -> None:
            self.location = f"{elsewhere}{self.path}" if "info/refs" in self.path else ""
            self.content = gzip.compress(b'{"/linux-mm/git/0.git": {}}')
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    linux_mm.url = f"http://127.0.0.1:{server.server_port}/linux-mm"
    read_list(mailing_list=linux_mm)
    server.shutdown()
    thread.join()
    server.server_close()
    assert subjects() == []
    assert "epoch 0: git ls-remote: " in linux_mm.last_error


def test_hanging_remote_costs_one_timeout_and_keeps_what_is_known(
    linux_mm: MailingList, archive: Archive, inbox: Path, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.sources.archives import epochs

    archive.add(*letters(1))
    Archive.create(inbox, number=1).add(*letters(1, start=1))
    read_list(mailing_list=linux_mm)
    monkeypatch.setattr(epochs, "_ASK_SECONDS", 0.5)
    places = tuple(EpochPlace(number, "") for number in (0, 1))
    with serving(hang) as silent:
        monkeypatch.setattr(
            archives_archive, "find_epochs", lambda *_, **__: [replace(p, url=f"{silent}/x") for p in places]
        )
        started = time.monotonic()
        read_list(mailing_list=linux_mm)
    assert time.monotonic() - started < 5
    assert "took longer than 0.5 s" in linux_mm.last_error
    assert len(subjects()) == 2


@pytest.mark.parametrize("content", [b"not json", b"[1, 2"])
def test_broken_manifest_is_an_error_of_the_list(
    linux_mm: MailingList, inbox: Path, archive: Archive, web: str, content: bytes
) -> None:
    write_manifest(inbox, content)
    linux_mm.url = f"{web}/linux-mm"
    read_list(mailing_list=linux_mm)
    assert "no manifest" in linux_mm.last_error


def test_manifest_that_is_no_gzip_and_dead_server_are_errors_of_the_list(
    linux_mm: MailingList, inbox: Path, archive: Archive, web: str
) -> None:
    (inbox / "manifest.js.gz").write_bytes(b"plain")
    linux_mm.url = f"{web}/linux-mm"
    read_list(mailing_list=linux_mm)
    assert "no manifest" in linux_mm.last_error
    linux_mm.url = "http://127.0.0.1:1/linux-mm"
    read_list(mailing_list=linux_mm)
    assert "127.0.0.1:1" in linux_mm.last_error


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://localhost:1/manifest.js.gz", "redirects to another host, localhost"),
        ("/manifest.js.gz", "redirects too often"),
        ("", "larger than 8 MB"),
    ],
)
def test_manifest_is_read_from_its_own_host_and_no_further_than_needed(
    linux_mm: MailingList, location: str, reason: str
) -> None:
    handler = type("Handler", (_Elsewhere,), {"location": location})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    linux_mm.url = f"http://127.0.0.1:{server.server_port}/linux-mm"
    read_list(mailing_list=linux_mm)
    server.shutdown()
    thread.join()
    server.server_close()
    assert reason in linux_mm.last_error
