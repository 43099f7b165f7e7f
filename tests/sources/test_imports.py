import io
import mailbox
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from server.sources.imports import mails_in
from server.sources.models import MailingList, Message, Series
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


def test_mailing_of_git_format_patch_is_read(upstream: Upstream, linux_mm: MailingList, tmp_path: Path) -> None:
    mbox = tmp_path / "series.mbox"
    mbox.write_text(
        upstream.git("format-patch", "--stdout", "--thread", "--cover-letter", two_patches(upstream)) + "\n"
    )
    call_command("import_mail", linux_mm.name, str(mbox))
    assert Message.objects.count() == 3
    assert Series.objects.get().state == Series.State.READY


def test_maildir_and_folder_of_mails_are_read(linux_mm: MailingList, tmp_path: Path) -> None:
    box = mailbox.Maildir(tmp_path / "box")
    box.add(ONE)
    box.close()
    call_command("import_mail", linux_mm.name, str(tmp_path / "box"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "two.eml").write_bytes(TWO)
    (tmp_path / "folder" / "notes.txt").write_bytes(b"no mail")
    call_command("import_mail", linux_mm.name, str(tmp_path / "folder"))
    assert sorted(Message.objects.values_list("message_id", flat=True)) == ["1@x", "2@x"]


def test_pipe_of_a_mail_server_stores_one_mail_once(
    linux_mm: MailingList, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(mail("[PATCH] x", DIFF))))
        call_command("import_mail", linux_mm.name, "-")
    assert "1 mails stored" in capsys.readouterr().out
    assert Message.objects.count() == 1


def test_missing_file_and_unknown_list_are_named(linux_mm: MailingList) -> None:
    with pytest.raises(CommandError, match="not-there"):
        call_command("import_mail", linux_mm.name, "/not-there")
    with pytest.raises(CommandError, match="there is no list"):
        call_command("import_mail", "nothing", "-")
