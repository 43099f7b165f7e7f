import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.postings import Archive, discussion, ensure_posting, make_mails, remark
from demo.processes import git
from server.sources.mail.parser import parse_mail
from tests.demo.kernels import kernel_repository, patches_of

POSTED_AT = 1_795_000_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return Archive(tmp_path / "archive", free_port())


def subjects(archive: Archive) -> list[str]:
    return git(archive.epoch, "log", "--reverse", "--format=%s").splitlines()


def test_delivered_mails_stand_in_the_git_epoch_once(archive: Archive, tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("slow"))
    mails = make_mails(repository, ensure_posting(tmp_path, "slow", repository))
    archive.prepare()
    for mail in [*mails, *mails]:
        archive.deliver(mail)
    assert [subject[:11] for subject in subjects(archive)] == ["[PATCH 0/2]", "[PATCH 1/2]", "[PATCH 2/2]"]
    head, _, body = mails[-1].decode().strip().partition("\n\n")
    stored_head, _, stored_body = git(archive.epoch, "show", "HEAD:m").partition("\n\n")
    assert stored_body == body
    assert stored_head.startswith(head), "public-inbox only adds a header of its own"


def test_archive_begins_with_talk_between_people(archive: Archive) -> None:
    archive.prepare(discussion(POSTED_AT))
    archive.prepare(discussion(POSTED_AT + 5))
    assert len(subjects(archive)) == 3


def test_archive_whose_making_was_interrupted_is_completed(archive: Archive) -> None:
    archive.prepare(discussion(POSTED_AT)[:1])
    (archive.folder / "ready").unlink()
    archive.prepare(discussion(POSTED_AT))
    assert len(subjects(archive)) == 3


def test_nothing_is_written_into_the_home_of_the_user(archive: Archive, tmp_path: Path) -> None:
    archive.prepare(discussion(POSTED_AT))
    assert list((tmp_path / "home").iterdir()) == []


def test_no_mail_between_people_is_taken_for_a_patch(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("slow"))
    posting = ensure_posting(tmp_path, "slow", repository)
    answer = remark(posting, make_mails(repository, posting)[-1])
    mails = [*discussion(POSTED_AT), answer]
    parsed = [parse_mail(mail, blob="", received_at=datetime(2027, 1, 1, tzinfo=UTC)) for mail in mails]
    assert [mail.kind for mail in parsed] == ["other"] * 4
    assert parsed[-1].in_reply_to == posting.message_id(2)
    assert "> diff --git a/arch" in parsed[-1].body
    assert parsed[2].sender_name == "Zoë Example"


def test_archive_is_served_with_its_epoch(archive: Archive, tmp_path: Path) -> None:
    archive.prepare(discussion(POSTED_AT))
    server = subprocess.Popen(
        archive.server(),
        env={**os.environ, **archive.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_answer(f"{archive.url}/manifest.js.gz")
        clone = tmp_path / "clone"
        subprocess.run(["git", "clone", "-q", "--mirror", f"{archive.url}/git/0.git", clone], check=True)
        assert git(clone, "rev-list", "--count", "HEAD") == "3"
    finally:
        server.terminate()
        server.wait()


def await_answer(url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
