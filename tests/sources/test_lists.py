import functools
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from server.sources.lists import claim_due_lists, read_list
from server.sources.models import Epoch, MailingList, Message
from tests.sources.posting import Archive, git, mail


def letters(count: int, start: int = 0) -> list[bytes]:
    return [mail(f"Letter {n}", message_id=f"letter-{n}@example.org") for n in range(start, start + count)]


@pytest.fixture
def inbox(tmp_path: Path, linux_mm: MailingList) -> Path:
    linux_mm.url = str(tmp_path / "linux-mm")
    linux_mm.save()
    return tmp_path / "linux-mm"


@pytest.fixture
def archive(inbox: Path) -> Archive:
    return Archive.create(inbox)


def subjects() -> list[str]:
    return list(Message.objects.order_by("pk").values_list("subject", flat=True))


def test_mails_are_read_oldest_first_and_once(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(3))
    assert read_list(mailing_list=linux_mm).commits == 3
    assert subjects() == ["Letter 0", "Letter 1", "Letter 2"]
    assert bytes(Message.objects.order_by("pk")[0].raw) == letters(1)[0]
    assert read_list(mailing_list=linux_mm).commits == 0
    archive.add(*letters(1, start=3))
    assert read_list(mailing_list=linux_mm).commits == 1
    assert len(subjects()) == 4


def test_long_archive_is_read_in_steps(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(5))
    steps = [read_list(mailing_list=linux_mm, limit=2) for _ in range(3)]
    assert [(s.commits, s.more) for s in steps] == [(2, True), (2, True), (1, False)]
    assert len(subjects()) == 5


def test_epochs_follow_each_other(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    archive.add(*letters(2))
    read_list(mailing_list=linux_mm)
    Archive.create(inbox, number=1).add(*letters(2, start=2))
    read_list(mailing_list=linux_mm)
    assert subjects() == [f"Letter {n}" for n in range(4)]
    assert [e.number for e in Epoch.objects.all()] == [0, 1]


def test_deletion_takes_the_content_and_keeps_the_row(linux_mm: MailingList, archive: Archive) -> None:
    first, second = letters(2)
    archive.add(first, second)
    read_list(mailing_list=linux_mm)
    archive.delete(first)
    read_list(mailing_list=linux_mm)
    gone, kept = Message.objects.order_by("pk")
    assert (gone.kind, bytes(gone.raw)) == (Message.Kind.DELETED, b"")
    assert bytes(kept.raw) == second


def test_rewritten_history_is_read_again_without_doubles(linux_mm: MailingList, archive: Archive) -> None:
    mails = letters(4)
    archive.add(*mails)
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[2], mails[3], *letters(1, start=4))
    assert read_list(mailing_list=linux_mm).commits == 4
    assert subjects() == [f"Letter {n}" for n in range(5)]
    assert read_list(mailing_list=linux_mm).commits == 0


def test_purged_mail_loses_its_content(linux_mm: MailingList, archive: Archive) -> None:
    first, second = letters(2)
    archive.add(first, second)
    read_list(mailing_list=linux_mm)
    gone = Message.objects.get(message_id="letter-0@example.org")
    archive.rewrite()
    archive.purge(gone.blob)
    archive.add(second)
    read_list(mailing_list=linux_mm)
    gone.refresh_from_db()
    assert (gone.kind, bytes(gone.raw)) == (Message.Kind.DELETED, b"")
    assert Message.objects.count() == 2


def test_edited_mail_is_a_new_message(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(1))
    read_list(mailing_list=linux_mm)
    archive.rewrite(letters(1)[0].replace(b"Text.", b"Edited."))
    read_list(mailing_list=linux_mm)
    assert Message.objects.filter(message_id="letter-0@example.org").count() == 2


def test_hostile_mails_do_not_stop_the_list(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(b"\0\xff", b"From:\n\n", *letters(1), mail("[PATCH 1/2] x", "\0", message_id="n@x"))
    assert read_list(mailing_list=linux_mm).commits == 4
    assert Message.objects.count() == 4
    assert linux_mm.last_error == ""


def test_position_moves_with_each_mail(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that dies in the middle of a mail has neither that mail nor its position."""
    from server.sources import lists
    from server.sources.messages import store_message as real

    archive.add(*letters(3))

    def dies_at_second(**arguments: object) -> Message:
        message = real(**arguments)  # type: ignore[arg-type]
        if message.subject == "Letter 1":
            raise KeyboardInterrupt
        return message

    monkeypatch.setattr(lists, "store_message", dies_at_second)
    with pytest.raises(KeyboardInterrupt):
        read_list(mailing_list=linux_mm)
    assert subjects() == ["Letter 0"]
    monkeypatch.setattr(lists, "store_message", real)
    assert read_list(mailing_list=linux_mm).commits == 2
    assert subjects() == ["Letter 0", "Letter 1", "Letter 2"]


def test_unreachable_list_is_recorded_and_recovers(linux_mm: MailingList, inbox: Path) -> None:
    assert read_list(mailing_list=linux_mm).commits == 0
    assert "no epochs in" in linux_mm.last_error
    assert linux_mm.failing_since is not None
    Archive.create(inbox).add(*letters(1))
    assert read_list(mailing_list=linux_mm).commits == 1
    recovered = MailingList.objects.get()
    assert recovered.failing_since is None
    assert recovered.last_error == ""


def test_empty_archive_is_an_error_that_passes(linux_mm: MailingList, archive: Archive) -> None:
    read_list(mailing_list=linux_mm)
    assert linux_mm.last_error != ""
    archive.add(*letters(1))
    assert read_list(mailing_list=linux_mm).commits == 1


def test_due_list_is_given_out_once(linux_mm: MailingList) -> None:
    assert claim_due_lists() == [linux_mm]
    assert claim_due_lists() == []


def test_command_reads_everything(linux_mm: MailingList, archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    archive.add(*letters(2))
    call_command("read_list", linux_mm.name)
    assert "2 commits read" in capsys.readouterr().out
    with pytest.raises(CommandError, match="there is no list nothing"):
        call_command("read_list", "nothing")


class _Quiet(SimpleHTTPRequestHandler):
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
    import gzip

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


def test_hostile_headers_do_not_stop_the_list(linux_mm: MailingList, archive: Archive) -> None:
    hostile = [b"From: " + b"x" * 2**20 + b"\n\n.\n", b"Subject: " + b"[a]" * 2**19 + b"\n\n.\n"]
    archive.add(*hostile, *letters(1))
    assert read_list(mailing_list=linux_mm).commits == 3
    reasons = Message.objects.filter(kind="unusable").values_list("reason", flat=True)
    assert [reason.split(" is ")[0] for reason in reasons] == [
        f"cannot be parsed: HeaderTooLongError: header {name}" for name in ("From", "Subject")
    ]
    assert Message.objects.count() == 3


class _Elsewhere(BaseHTTPRequestHandler):
    """Answers manifest.js.gz with a redirect, or with more than anybody needs."""

    location = ""

    def do_GET(self) -> None:
        if self.location:
            self.send_response(302)
            self.send_header("Location", self.location)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(64):
                self.wfile.write(b"x" * 2**20)

    def log_message(self, *_args: object) -> None:
        pass


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
