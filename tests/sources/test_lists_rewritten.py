"""Archives that rewrite their history, and archives that only lost it."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from server.sources.archives import archive as archives_archive
from server.sources.archives.archive import read_list
from server.sources.models import MailingList, Message
from tests.sources.letters import content, killed, letters, subjects
from tests.sources.posting import Archive, git


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


def test_purged_mail_leaves_the_disk(linux_mm: MailingList, archive: Archive, state_dir: Path) -> None:
    archive.add(*letters(3))
    read_list(mailing_list=linux_mm)
    gone = Message.objects.get(message_id="letter-1@example.org")
    archive.rewrite(letters(1)[0])
    archive.purge(gone.blob)
    archive.add(*letters(1, start=2))
    read_list(mailing_list=linux_mm)
    copy = state_dir / "lists" / "linux-mm" / "0.git"
    listed = git(copy, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    assert gone.blob not in listed
    assert Message.objects.get(message_id="letter-0@example.org").blob in listed


def test_mail_that_vanished_without_a_word_loses_its_content(linux_mm: MailingList, archive: Archive) -> None:
    mails = letters(4)
    archive.add(*mails)
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[2], mails[3])
    assert read_list(mailing_list=linux_mm).deleted == 1
    assert content("letter-1@example.org") == [b""]
    assert content("letter-2@example.org") == [mails[2]]


def test_mail_that_moved_to_another_epoch_stays(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    mails = letters(4)
    archive.add(*mails)
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[3])
    Archive.create(inbox, number=1).add(mails[1], mails[2])
    assert read_list(mailing_list=linux_mm).deleted == 0
    assert all(content(f"letter-{n}@example.org") == [mails[n]] for n in range(4))


def test_edited_mail_is_a_new_message_and_the_old_one_loses_its_content(
    linux_mm: MailingList, archive: Archive
) -> None:
    archive.add(*letters(1))
    read_list(mailing_list=linux_mm)
    edited = letters(1)[0].replace(b"Text.", b"Edited.")
    archive.rewrite(edited)
    read_list(mailing_list=linux_mm)
    assert content("letter-0@example.org") == [b"", edited]


def test_archive_that_was_set_back_takes_nothing_away(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(4))
    read_list(mailing_list=linux_mm)
    git(archive.path, "update-ref", "refs/heads/master", "master~2")
    assert read_list(mailing_list=linux_mm).commits == 0
    archive.count += 100
    archive.add(*letters(2, start=7))
    assert read_list(mailing_list=linux_mm).deleted == 0
    assert all(content(f"letter-{n}@example.org") != [b""] for n in (0, 1, 2, 3, 7, 8))
    assert linux_mm.last_error == ""


def test_archive_that_begins_anew_takes_nothing_away(linux_mm: MailingList, archive: Archive) -> None:
    archive.add(*letters(3))
    read_list(mailing_list=linux_mm)
    archive.rewrite(*letters(2, start=10))
    read_list(mailing_list=linux_mm)
    assert Message.objects.exclude(kind=Message.Kind.DELETED).count() == 5


def test_rewritten_history_brings_no_deleted_mail_back(linux_mm: MailingList, archive: Archive, inbox: Path) -> None:
    """The deletion stands in a later epoch, which is not read again."""
    mails = letters(3)
    archive.add(*mails)
    later = Archive.create(inbox, number=1)
    later.delete(mails[0])
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[2])
    read_list(mailing_list=linux_mm)
    assert content("letter-0@example.org") == [b""]


def test_mails_that_a_history_lacked_for_a_while_are_back_with_it(linux_mm: MailingList, archive: Archive) -> None:
    mails = letters(5)
    archive.add(*mails)
    archive.delete(mails[1])
    archive.add(*letters(1, start=5))
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[2], *letters(1, start=5))
    assert read_list(mailing_list=linux_mm).deleted == 2
    archive.rewrite(*mails)
    archive.delete(mails[1])
    archive.add(*letters(1, start=5))
    read_list(mailing_list=linux_mm)
    assert all(content(f"letter-{n}@example.org") == [mails[n]] for n in (0, 2, 3, 4))
    assert content("letter-1@example.org") == [b""]


def test_mail_taken_again_after_its_deletion_has_its_content_after_a_rewrite(
    linux_mm: MailingList, archive: Archive
) -> None:
    mails = letters(4)
    archive.add(*mails)
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[1], mails[3])
    archive.delete(mails[1])
    archive.delete(mails[3])
    archive.add(mails[1])
    read_list(mailing_list=linux_mm)
    assert content("letter-1@example.org") == [mails[1]]
    assert content("letter-2@example.org") == content("letter-3@example.org") == [b""]


def test_reader_killed_between_rewriting_and_settling_goes_on(
    linux_mm: MailingList, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = letters(4)
    archive.add(*mails)
    read_list(mailing_list=linux_mm)
    archive.rewrite(mails[0], mails[3])
    with monkeypatch.context() as broken:
        broken.setattr(archives_archive, "settle_replaced", Mock(side_effect=KeyboardInterrupt))
        killed(linux_mm)
    assert content("letter-1@example.org") == [mails[1]]
    with monkeypatch.context() as broken:
        broken.setattr(archives_archive, "forget", Mock(side_effect=[True, KeyboardInterrupt]))
        killed(linux_mm)
    read_list(mailing_list=linux_mm)
    assert content("letter-1@example.org") == content("letter-2@example.org") == [b""]


def test_lost_copy_is_fetched_again_and_changes_nothing(
    linux_mm: MailingList, archive: Archive, state_dir: Path
) -> None:
    first, second = letters(2)
    archive.add(first, second)
    read_list(mailing_list=linux_mm)
    shutil.rmtree(state_dir / "lists")
    archive.add(*letters(1, start=2))
    read_list(mailing_list=linux_mm)
    assert subjects() == ["Letter 0", "Letter 1", "Letter 2"]
    assert linux_mm.last_error == ""
