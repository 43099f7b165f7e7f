import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.postings import OUTCOMES, commit_patch, ensure_posting, kinds, make_mails
from demo.processes import ADDRESS, DemoError, git, git_environment, run
from server.sources.mail.parser import ParsedMail, parse_mail
from tests.demo.kernels import kernel_repository, patches_of


def apply_mails(
    repository: Path, commit: str, mails: list[bytes], folder: Path
) -> "subprocess.CompletedProcess[bytes]":
    checkout = folder / "checkout"
    run(["git", "clone", "--quiet", repository, checkout], env=git_environment())
    git(checkout, "checkout", "--quiet", "--detach", commit)
    box = b"".join(b"From demo Thu Jan  1 00:00:00 2026\n" + mail + b"\n" for mail in mails)
    command = ["git", "-C", str(checkout), "am", "--quiet", "-3"]
    return subprocess.run(command, input=box, env=git_environment(), capture_output=True, check=False)


def read(mails: list[bytes]) -> list[ParsedMail]:
    return [parse_mail(mail, blob="", received_at=datetime(2027, 1, 1, tzinfo=UTC)) for mail in mails]


def test_every_series_says_how_it_must_end() -> None:
    assert set(kinds()) == set(OUTCOMES)


@pytest.mark.parametrize("kind", sorted(set(OUTCOMES) - {"conflict"}))
def test_posted_patches_apply_to_their_base(kind: str, tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of(kind))
    posting = ensure_posting(tmp_path, kind, repository)
    mails = make_mails(repository, posting)
    patches = mails[1:] if posting.has_cover else mails
    done = apply_mails(repository, posting.base, patches, tmp_path)
    assert done.returncode == 0, done.stderr
    applied = git(tmp_path / "checkout", "rev-parse", "HEAD^{tree}")
    assert applied == git(repository, "rev-parse", f"refs/demo/{kind}^{{tree}}")
    assert applied != git(repository, "rev-parse", f"{posting.base}^{{tree}}")


def test_series_on_an_unposted_patch_does_not_apply(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("conflict"))
    posting = ensure_posting(tmp_path, "conflict", repository)
    # The mirror of a service has only what branches lead to, so the clone must not hold the unposted commit either.
    mails = make_mails(repository, posting)
    git(repository, "update-ref", "-d", "refs/demo/conflict")
    assert apply_mails(repository, posting.base, mails, tmp_path).returncode != 0


def test_slow_series_is_a_thread_of_cover_letter_and_two_patches(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("slow"))
    posting = ensure_posting(tmp_path, "slow", repository)
    cover, first, second = read(make_mails(repository, posting))
    assert [mail.kind for mail in (cover, first, second)] == ["cover", "patch", "patch"]
    assert cover.message_id == posting.root_message_id
    assert {first.in_reply_to, second.in_reply_to} == {cover.message_id}
    assert cover.base_commit == git(repository, "rev-parse", "HEAD")
    assert {mail.sender_address for mail in (cover, first, second)} == {ADDRESS}
    assert "demonstration" in cover.subject
    assert "***" not in cover.body


def test_lone_patch_needs_no_cover_letter(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("null"))
    posting = ensure_posting(tmp_path, "null", repository)
    (mail,) = read(make_mails(repository, posting))
    assert mail.kind == "patch"
    assert mail.message_id == posting.root_message_id
    assert mail.base_commit == posting.base


def test_same_posting_gives_the_same_bytes_and_another_one_new_ids(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("slow"))
    posting = ensure_posting(tmp_path, "slow", repository)
    assert ensure_posting(tmp_path, "slow", repository) == posting
    assert make_mails(repository, posting) == make_mails(repository, posting)
    other = ensure_posting(tmp_path, "slow", repository, again=True)
    assert other.root_message_id != posting.root_message_id
    assert ensure_posting(tmp_path, "slow", repository) == other


def test_series_that_takes_the_cost_away_stands_on_a_slow_branch(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("revert"))
    posting = ensure_posting(tmp_path, "revert", repository)
    assert git(repository, "rev-parse", f"refs/heads/{posting.branch}") == posting.base
    assert git(repository, "rev-parse", f"{posting.base}^") == git(repository, "rev-parse", "HEAD")
    make_mails(repository, posting)
    # Without the cost it is the tree that the slow branch started from.
    assert git(repository, "rev-parse", "refs/demo/revert^{tree}") == git(repository, "rev-parse", "HEAD^{tree}")


def test_patch_commits_are_the_same_everywhere(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        repository = kernel_repository(tmp_path / name, *patches_of("slow"))
        hashes.add(commit_patch(repository, "HEAD", patches_of("slow")[0]))
    assert len(hashes) == 1


def test_patch_that_does_not_fit_the_tree_is_told(tmp_path: Path) -> None:
    repository = kernel_repository(tmp_path, *patches_of("null"))
    with pytest.raises(DemoError, match="apply"):
        commit_patch(repository, "HEAD", patches_of("slow")[0])
