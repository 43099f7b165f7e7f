"""The real public-inbox programs: what their archives do over time, and watchers that are killed meanwhile."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from bench.archive.inbox import Inbox
from server.sources.archives.archive import read_list
from server.sources.messages.storage import blob_id
from server.sources.models import Epoch, MailingList, Message, Series
from tests.sources.posting import Upstream, mail, two_patches

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 60.0
Watcher = subprocess.Popen[bytes]


@pytest.fixture
def inbox(tmp_path: Path, linux_mm: MailingList) -> Iterator[Inbox]:
    """An archive whose epochs hold some twenty letters each."""
    inbox = Inbox.create(tmp_path / "served", epoch_bytes=4000)
    linux_mm.url = inbox.url
    linux_mm.save()
    with inbox.served():
        yield inbox


def letters(count: int, start: int = 0) -> list[bytes]:
    return [mail(f"Letter {n}", message_id=f"letter-{n}@example.org") for n in range(start, start + count)]


def stored() -> dict[str, str]:
    """Blob and Message-ID of every mail whose content is here."""
    there = Message.objects.exclude(raw=b"")
    assert all(blob_id(bytes(message.raw)) == message.blob for message in there)
    return dict(there.values_list("blob", "message_id"))


def test_archive_is_followed_through_delivery_removal_purge_and_edit(inbox: Inbox, linux_mm: MailingList) -> None:
    first, second, third = letters(3)
    inbox.add(letters(3))
    assert read_list(mailing_list=linux_mm).stored == 3, linux_mm.last_error

    inbox.remove(first)
    assert read_list(mailing_list=linux_mm).deleted == 1
    assert sorted(stored().values()) == ["letter-1@example.org", "letter-2@example.org"]

    # A purge rewrites the history of the epoch, and so does an edit, here of its last mail.
    inbox.purge(second)
    assert read_list(mailing_list=linux_mm).deleted == 1
    assert stored().keys() == inbox.live()
    inbox.edit(third)
    result = read_list(mailing_list=linux_mm)
    assert (result.stored, result.deleted, result.error) == (1, 1, "")
    assert stored().keys() == inbox.live()
    assert b"added later" in bytes(Message.objects.exclude(raw=b"").get().raw)
    assert Epoch.objects.get().rewritten_at is not None

    inbox.add([first])
    read_list(mailing_list=linux_mm)
    assert sorted(stored().values()) == ["letter-0@example.org", "letter-2@example.org"]
    assert read_list(mailing_list=linux_mm).commits == 0


def test_epochs_roll_over_and_unchanged_ones_are_not_asked(inbox: Inbox, linux_mm: MailingList) -> None:
    inbox.add(letters(30))
    read_list(mailing_list=linux_mm)
    assert Epoch.objects.count() == len(inbox.epochs()) > 1
    # As the manifest says that nothing has changed there, git does not see that it is gone.
    (inbox.epochs()[0] / "config").unlink()
    inbox.add(letters(30, start=30))
    assert read_list(mailing_list=linux_mm).error == ""
    assert len(stored()) == 60


def test_two_versions_with_equal_message_ids_are_both_read(
    inbox: Inbox, linux_mm: MailingList, upstream: Upstream
) -> None:
    """public-inbox gives the second mail of an id another one besides; both must find their series."""
    commits = two_patches(upstream)
    inbox.add(upstream.mails(commits, "--to=linux-mm@example.org", "--cover-letter"))
    inbox.add(upstream.mails(commits, "--to=linux-mm@example.org", "--cover-letter", "-v2"))
    assert read_list(mailing_list=linux_mm).commits == 6, linux_mm.last_error
    first, second = Series.objects.order_by("version")
    assert first.superseded_by == second
    assert (second.version, second.patches.count()) == (2, 2)


def watcher(log: Path, *options: str) -> Watcher:
    """`manage.py watch_list` in a process of its own, on the database of this test; it says all in `log`."""
    database = settings.DATABASES["default"]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "server.settings",
        "TIDEMARK_DATABASE_URL": f"postgres://{database['USER']}@/{connection.settings_dict['NAME']}?host={_host()}",
        "TIDEMARK_STATE_DIR": str(settings.STATE_DIR),
    }
    command = (sys.executable, "manage.py", "watch_list", "linux-mm", *options)
    with log.open("ab") as out:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)


def _host() -> str:
    known = connection.settings_dict
    return str(known["OPTIONS"].get("host") or known["HOST"])


def wait_for_mails(more_than: int, log: Path) -> int:
    end = time.monotonic() + _PATIENCE
    while (count := Message.objects.count()) <= more_than:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.01)
    return count


@pytest.mark.real
@pytest.mark.django_db(transaction=True)
def test_killed_watchers_leave_what_an_undisturbed_one_would(
    inbox: Inbox, linux_mm: MailingList, tmp_path: Path
) -> None:
    MailingList.objects.update(poll_seconds=1)
    mails = letters(60)

    def change(number: int) -> None:
        if number == 0:
            inbox.remove(mails[3])
            inbox.add(mails[25:45])
        elif number == 1:
            inbox.purge(mails[7])
            inbox.add(mails[45:])

    inbox.add(mails[:25])
    log = tmp_path / "watchers.log"
    running = [watcher(log), watcher(log)]
    count = 0
    try:
        for number in range(3):
            # A mail that is purged before anybody read it leaves no row: the two are read before they go.
            count = wait_for_mails(max(count, 8), log) if count < len(mails) else count
            victim = running.pop(0)
            victim.kill()
            victim.wait()
            change(number)
            running.append(watcher(log))
        last = watcher(log, "--once")
        running.append(last)
        assert last.wait(timeout=_PATIENCE) == 0, log.read_text()
        for steady in running[:-1]:
            steady.send_signal(signal.SIGTERM)
            assert steady.wait(timeout=_PATIENCE) == 0, log.read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert stored().keys() == inbox.live()
    assert Message.objects.count() == len(mails)
    assert Message.objects.filter(kind=Message.Kind.DELETED).count() == 2
    assert len(inbox.epochs()) == Epoch.objects.count() > 1
    assert MailingList.objects.get().last_error == ""
