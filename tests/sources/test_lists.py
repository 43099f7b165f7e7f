"""Reading list archives on: positions, deletions, and what stops in between."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from server.core import clock
from server.sources.archives.archive import claim_due_lists, read_list
from server.sources.models import Epoch, MailingList, Message
from tests.sources.letters import content, killed, letters, subjects
from tests.sources.posting import NOON, Archive, mail


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


def test_deleted_mail_that_is_taken_again_is_back(linux_mm: MailingList, archive: Archive) -> None:
    first, second = letters(2)
    archive.add(first, second)
    archive.delete(first)
    read_list(mailing_list=linux_mm)
    assert content("letter-0@example.org") == [b""]
    archive.add(first)
    read_list(mailing_list=linux_mm)
    assert content("letter-0@example.org") == [first]


def test_mails_from_before_the_beginning_are_not_read(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(4))
    linux_mm.since = datetime.fromtimestamp(NOON + 3, tz=UTC)
    read_list(mailing_list=linux_mm)
    assert subjects() == ["Letter 2", "Letter 3"]
    linux_mm.since = datetime.fromtimestamp(NOON + 5000, tz=UTC)
    archive.add(*letters(1, start=4))
    read_list(mailing_list=linux_mm)
    assert subjects() == ["Letter 2", "Letter 3", "Letter 4"]


def test_message_knows_when_the_archive_took_it(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(1))
    archive.count = 10**9
    archive.add(*letters(1, start=1))
    read_list(mailing_list=linux_mm)
    sensible, impossible = Message.objects.order_by("pk")
    assert sensible.received_at == datetime.fromtimestamp(NOON + 1, tz=UTC)
    assert impossible.received_at <= clock.now()


def test_hostile_mails_do_not_stop_the_list(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(b"\0\xff", b"From:\n\n", *letters(1), mail("[PATCH 1/2] x", "\0", message_id="n@x"))
    assert read_list(mailing_list=linux_mm).commits == 4
    assert Message.objects.count() == 4
    assert linux_mm.last_error == ""


def test_position_moves_with_each_mail(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that dies in the middle of a mail has neither that mail nor its position."""
    from server.sources.archives import archive as reader
    from server.sources.messages.storage import ReadMail, StoredMail, keep_parsed

    archive.add(*letters(3))

    def dies_at_second(*, mailing_list: MailingList, mail: ReadMail) -> StoredMail:
        stored = keep_parsed(mailing_list=mailing_list, mail=mail)
        if stored.message.subject == "Letter 1":
            raise KeyboardInterrupt
        return stored

    with monkeypatch.context() as broken:
        broken.setattr(reader, "keep_parsed", dies_at_second)
        killed(linux_mm)
    assert subjects() == ["Letter 0"]
    assert read_list(mailing_list=linux_mm).commits == 2
    assert subjects() == ["Letter 0", "Letter 1", "Letter 2"]


def test_reading_that_is_asked_to_stop_finishes_the_mail_at_hand(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(3))
    answers = iter([False])
    assert read_list(mailing_list=linux_mm, stop=lambda: next(answers, True)).more
    assert subjects() == ["Letter 0"]
    assert not read_list(mailing_list=linux_mm).more
    assert len(subjects()) == 3


def test_position_that_another_process_moved_is_left_alone(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.sources.archives import archive as reader
    from server.sources.messages.storage import keep_parsed

    archive.add(*letters(3))

    def other_process(**arguments: Any) -> object:
        Epoch.objects.update(last_commit="f" * 40)
        return keep_parsed(**arguments)

    monkeypatch.setattr(reader, "keep_parsed", other_process)
    assert read_list(mailing_list=linux_mm).more
    assert Epoch.objects.get().last_commit == "f" * 40


def test_empty_epoch_is_no_failure(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    read_list(mailing_list=linux_mm)
    assert linux_mm.last_error == ""
    archive.add(*letters(1))
    Archive.create(inbox, number=1)
    assert read_list(mailing_list=linux_mm).commits == 1
    assert linux_mm.last_error == ""


def test_due_list_is_given_out_once(linux_mm: MailingList) -> None:
    assert claim_due_lists() == [linux_mm]
    assert claim_due_lists() == []


def test_command_reads_everything_and_says_what(
    linux_mm: MailingList, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.add(*letters(2))
    archive.delete(letters(1)[0])
    call_command("watch_list", linux_mm.name, "--once")
    out = capsys.readouterr().out
    assert out.startswith("linux-mm: 3 commits read, 2 mails stored, 1 deleted, ")
    assert out.count("\n") == 1


def test_command_names_list_address_and_reason(linux_mm: MailingList, inbox: Path) -> None:
    with pytest.raises(CommandError, match="there is no list nothing"):
        call_command("watch_list", "nothing", "--once")
    with pytest.raises(CommandError, match=f"list linux-mm at {inbox} could not be read: .*no epochs"):
        call_command("watch_list", "linux-mm", "--once")


def test_hostile_headers_do_not_stop_the_list(linux_mm: MailingList, archive: Archive) -> None:
    hostile = [b"From: " + b"x" * 2**20 + b"\n\n.\n", b"Subject: " + b"[a]" * 2**19 + b"\n\n.\n"]
    archive.add(*hostile, *letters(1))
    assert read_list(mailing_list=linux_mm).commits == 3
    reasons = Message.objects.filter(kind="unusable").values_list("reason", flat=True)
    assert [reason.split(" is ")[0] for reason in reasons] == [f"header {name}" for name in ("From", "Subject")]
    assert Message.objects.count() == 3
