"""The real public-inbox programs: an archive over HTTP with a delivery, a removal and a purge."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.sources.lists import read_list
from server.sources.models import MailingList, Message, Series
from tests.sources.posting import Upstream, mail, two_patches

pytestmark = pytest.mark.skipif(shutil.which("public-inbox-httpd") is None, reason="public-inbox is not installed")

ADDRESS = "linux-mm@example.org"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Inbox:
    home: Path
    url: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PI_CONFIG": str(self.home / "config"),
            "ORIGINAL_RECIPIENT": ADDRESS,
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def run(self, *command: str, stdin: bytes = b"") -> None:
        done = subprocess.run(command, env=self.environment, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def deliver(self, *mails: bytes) -> None:
        for raw in mails:
            self.run("public-inbox-mda", "--no-precheck", stdin=raw)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    home = tmp_path / "home"
    home.mkdir()
    port = free_port()
    inbox = Inbox(home, f"http://127.0.0.1:{port}/linux-mm")
    inbox.run("public-inbox-init", "-V2", "-L", "basic", "linux-mm", str(home / "linux-mm"), inbox.url, ADDRESS)
    inbox.run("git", "config", "-f", str(home / "config"), "publicinboxmda.spamcheck", "none")
    server = subprocess.Popen(
        ["public-inbox-httpd", "-W0", "-l", f"127.0.0.1:{port}"],
        env=inbox.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield inbox
    finally:
        server.terminate()
        server.wait()


def wait_for(port: int) -> None:
    for _ in range(200):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("public-inbox-httpd does not listen")


def test_archive_is_followed_through_delivery_removal_and_purge(
    inbox: Inbox, linux_mm: MailingList, upstream: Upstream
) -> None:
    linux_mm.url = inbox.url
    patches = upstream.mails(two_patches(upstream), f"--to={ADDRESS}", "--cover-letter")
    letters = [mail(f"Letter {n}", message_id=f"letter-{n}@example.org") for n in range(2)]
    inbox.deliver(*patches, *letters)
    assert read_list(mailing_list=linux_mm).commits == 5, linux_mm.last_error
    assert Series.objects.get().state == Series.State.READY

    inbox.run("public-inbox-learn", "rm", stdin=letters[0])
    assert read_list(mailing_list=linux_mm).commits == 1, linux_mm.last_error
    removed = Message.objects.get(message_id="letter-0@example.org")
    assert (removed.kind, bytes(removed.raw)) == (Message.Kind.DELETED, b"")

    # A purge rewrites the history of the epoch.
    inbox.run("public-inbox-purge", str(inbox.home / "linux-mm"), stdin=letters[1])
    inbox.deliver(mail("Letter 2", message_id="letter-2@example.org"))
    read_list(mailing_list=linux_mm)
    assert linux_mm.last_error == ""
    assert Message.objects.count() == 6
    assert Message.objects.filter(message_id="letter-2@example.org").exists()
    purged = Message.objects.get(message_id="letter-1@example.org")
    assert (purged.kind, bytes(purged.raw)) == (Message.Kind.DELETED, b"")
    assert read_list(mailing_list=linux_mm).commits == 0


def test_two_versions_with_equal_message_ids_are_both_read(
    inbox: Inbox, linux_mm: MailingList, upstream: Upstream
) -> None:
    """public-inbox gives the second mail of an id another one besides; both must find their series."""
    linux_mm.url = inbox.url
    commits = two_patches(upstream)
    inbox.deliver(*upstream.mails(commits, f"--to={ADDRESS}", "--cover-letter"))
    inbox.deliver(*upstream.mails(commits, f"--to={ADDRESS}", "--cover-letter", "-v2"))
    assert read_list(mailing_list=linux_mm).commits == 6, linux_mm.last_error
    first, second = Series.objects.order_by("version")
    assert (first.state, second.state) == (Series.State.SUPERSEDED, Series.State.READY)
