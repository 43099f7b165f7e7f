from pathlib import Path

import pytest

from bench.mail.mailboxes import NoMailsError, many, renamed, threads_in
from bench.mail.memory import mbox
from server.sources.mail.parser import parse_mail
from tests.fuzz.checks import RECEIVED
from tests.fuzz.mails import OWN

FIRST = b"From: Ada <ada@example.org>\nMessage-ID: <1@x>\nSubject: <kept@x>\n\nFrom <body@x>\n"
ANSWER = b"Message-ID: <2@x>\r\nReferences: <0@x>\r\n\t<1@x>\r\n\r\n<body@x>\r\n"


def test_every_file_is_a_thread(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.mbox").write_bytes(b"".join(mbox([[FIRST, ANSWER]], 2)))
    (tmp_path / "below" / "b.eml").write_bytes(ANSWER)
    (tmp_path / "readme.txt").write_bytes(FIRST)
    first, second = threads_in(tmp_path)
    assert [len(first), len(second)] == [2, 1]
    assert second == [ANSWER]


def test_a_folder_without_mails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoMailsError, match="no mails in"):
        threads_in(tmp_path)


def test_a_copy_is_another_thread_of_other_people() -> None:
    first, answer = renamed([FIRST, ANSWER], 3)
    assert first == FIRST.replace(b"<1@x>", b"<copy-3.1@x>").replace(b"ada@", b"ada@copy-3.")
    assert answer == ANSWER.replace(b"<0@", b"<copy-3.0@").replace(b"<1@", b"<copy-3.1@").replace(b"<2@", b"<copy-3.2@")


def test_copies_are_made_until_there_are_enough_mails() -> None:
    threads = list(many([[FIRST, ANSWER], [ANSWER]], 5))
    assert [len(thread) for thread in threads] == [2, 1, 2]
    ids = [parse_mail(mail, blob="b", received_at=RECEIVED).message_id for thread in threads for mail in thread]
    assert ids == ["1@x", "2@x", "2@x", "copy-1.1@x", "copy-1.2@x"]


def test_an_mbox_holds_as_many_mails_as_went_in(tmp_path: Path) -> None:
    file = tmp_path / "all.mbox"
    file.write_bytes(b"".join(mbox([list(OWN), [FIRST]], len(OWN) + 1)))
    assert sum(map(len, threads_in(tmp_path))) == len(OWN) + 1
