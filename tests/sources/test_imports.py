import io
import mailbox
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from server.core.errors import DomainError
from server.sources.messages import mailboxes
from server.sources.messages.mailboxes import mails_in, mails_of
from server.sources.models import MailingList, Message, Series
from tests.builders import build_list
from tests.sources.posting import DIFF, Upstream, mail, two_patches

ONE, TWO = mail("One", message_id="1@x"), mail("Two", "From here on.\n\nFrom the start.\n", message_id="2@x")


def test_mbox_is_split_at_from_lines_only() -> None:
    quoted = TWO.replace(b"\nFrom ", b"\n>From ")
    mbox = b"From ada Mon Nov  2 10:00:00 2026\n" + ONE + b"\nFrom ada Mon Nov  2 10:00:01 2026\n" + quoted + b"\n"
    assert list(mails_in(io.BytesIO(mbox))) == [ONE, TWO]


def test_single_mail_with_or_without_envelope_is_one_mail() -> None:
    assert list(mails_in(io.BytesIO(TWO))) == [TWO]
    assert list(mails_in(io.BytesIO(b"From ada Mon Nov  2 10:00:00 2026\n" + ONE))) == [ONE]
    assert list(mails_in(io.BytesIO(b""))) == []


def test_mbox_with_line_ends_of_windows_is_split_too() -> None:
    mbox = b"From ada Mon Nov  2 10:00:00 2026\n" + ONE + b"\nFrom ada Mon Nov  2 10:00:01 2026\n" + ONE + b"\n"
    windows = mbox.replace(b"\n", b"\r\n")
    assert list(mails_in(io.BytesIO(windows))) == [ONE.replace(b"\n", b"\r\n")] * 2


def test_mail_is_split_from_no_more_than_itself_in_memory() -> None:
    def many() -> Iterator[bytes]:
        for number in range(1000):
            yield b"From ada Mon Nov  2 10:00:00 2026\n"
            yield mail("One", "x" * 100_000, message_id=f"{number}@x") + b"\n\n"

    class Pipe(io.RawIOBase):
        """An endless pipe, as far as memory goes."""

        def __init__(self) -> None:
            self.parts = many()

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part = next(self.parts, b"")
            buffer[: len(part)] = part
            return len(part)

    tracemalloc.start()
    assert sum(1 for _ in mails_in(io.BufferedReader(Pipe(), 2**18))) == 1000
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_what_is_too_large_for_a_mail_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailboxes, "LARGEST_MAIL", 3 * 2**20)
    (tmp_path / "disk.eml").write_bytes(b"\0" * 4 * 2**20)
    with pytest.raises(DomainError, match=r"disk\.eml: holds a mail larger than 3 MB"):
        list(mails_of(tmp_path))


def test_mailing_of_git_format_patch_is_read(upstream: Upstream, linux_mm: MailingList, tmp_path: Path) -> None:
    mbox = tmp_path / "series.mbox"
    mbox.write_text(
        upstream.git("format-patch", "--stdout", "--thread", "--cover-letter", two_patches(upstream)) + "\n"
    )
    call_command("import_mail", str(mbox), "--list", linux_mm.name)
    assert Message.objects.count() == 3
    assert Series.objects.get().state == Series.State.HELD


def test_maildir_and_folder_of_mails_are_read(
    linux_mm: MailingList, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = mailbox.Maildir(tmp_path / "box")
    box.add(ONE)
    box.close()
    call_command("import_mail", str(tmp_path / "box"), "--list", linux_mm.name)
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "two.eml").write_bytes(TWO)
    (tmp_path / "folder" / "below" / "more.mbox").write_bytes(b"From ada Mon Nov  2 10:00:00 2026\n" + ONE + b"\n")
    (tmp_path / "folder" / "bad.eml").write_bytes(b"Subject: [PATCH] x\n\n" + DIFF.encode())
    (tmp_path / "folder" / "notes.txt").write_bytes(b"no mail")
    call_command("import_mail", str(tmp_path / "folder"), "--list", linux_mm.name)
    assert {"1@x", "2@x"} < set(Message.objects.values_list("message_id", flat=True))
    assert capsys.readouterr().out.splitlines() == [
        "1 mails stored, 0 known already, 0 unusable",
        "2 mails stored, 1 known already, 1 unusable",
    ]


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes, *options: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    call_command("import_mail", "-", *options)


@pytest.mark.django_db(transaction=True)
def test_pipe_of_a_mail_server_stores_one_mail_once(
    linux_mm: MailingList,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sent_tasks: list[tuple[str, tuple[int | str, ...]]],
) -> None:
    for _ in range(2):
        piped(monkeypatch, mail("[PATCH] x", DIFF), "--list", linux_mm.name)
    assert "0 mails stored, 1 known already" in capsys.readouterr().out
    assert Message.objects.count() == 1
    assert sent_tasks[0] == ("sources.group_threads", ())


def test_mail_goes_to_the_list_that_it_was_sent_to(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    linux_mm = build_list()
    other = build_list("linux-arm", address="linux-arm@lists.example.org")
    piped(monkeypatch, mail("by To", message_id="to@x"))
    piped(monkeypatch, mail("by List-Id", message_id="id@x", headers="List-Id: Arm <linux-arm.lists.example.org>\n"))
    nobody = mail("nobody", message_id="none@x").replace(b"To: linux-mm@example.org", b"To: someone@example.org")
    piped(monkeypatch, nobody)
    found = dict(Message.objects.values_list("message_id", "mailing_list__name"))
    assert found == {"to@x": linux_mm.name, "id@x": other.name, "none@x": "imported"}
    catch_all = MailingList.objects.get(name="imported")
    assert (catch_all.url, catch_all.tree) == ("", None)


def test_mail_server_keeps_the_mail_while_the_database_is_away(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_kwargs: object) -> None:
        raise OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(mailboxes, "keep_parsed", away)
    with pytest.raises(CommandError, match="does not take mails: connection refused") as raised:
        piped(monkeypatch, ONE, "--list", linux_mm.name)
    assert raised.value.returncode == os.EX_TEMPFAIL
    with pytest.raises(CommandError, match="there is no list") as raised:
        piped(monkeypatch, ONE, "--list", "nothing")
    assert raised.value.returncode == os.EX_TEMPFAIL
    with pytest.raises(CommandError, match="holds no mail") as raised:
        piped(monkeypatch, b"")
    assert raised.value.returncode == os.EX_DATAERR


def test_missing_file_and_unknown_list_are_named(linux_mm: MailingList, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="/not-there: No such file"):
        call_command("import_mail", "/not-there")
    with pytest.raises(CommandError, match="neither a maildir nor files"):
        call_command("import_mail", str(tmp_path))
    with pytest.raises(CommandError, match="there is no list"):
        call_command("import_mail", str(tmp_path), "--list", "nothing")
