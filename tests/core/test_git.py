import os
import time
from pathlib import Path

import pytest

from server.core.programs.git import GitError, Repository, environment, run
from tests.sources.posting import git, small_tree


def test_environment_of_the_caller_does_not_reach_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Intruder")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    seen = environment(cwd=tmp_path)
    assert "GIT_DIR" not in seen
    assert "GIT_CONFIG_COUNT" not in seen
    assert seen["https_proxy"] == "http://127.0.0.1:1"
    assert run("config", "--get", "user.name", cwd=tmp_path).code == 1


def test_configuration_of_a_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Intruder\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("config", "--get", "user.name", cwd=tmp_path).code == 1


def test_checkout_around_the_working_folder_is_not_found(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    inside = tmp_path / "inside"
    inside.mkdir()
    assert run("rev-parse", "--git-dir", cwd=inside).code != 0


def test_hooks_of_a_repository_never_run(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    hook = upstream.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    Repository(upstream.path / ".git", upstream.path).output("checkout", "-q", "--detach", "HEAD~1")
    assert not (upstream.path / "ran").exists()


def test_protocols_that_run_programs_are_refused(tmp_path: Path) -> None:
    done = run("ls-remote", "ext::sh -c touch% ran", cwd=tmp_path)
    assert done.code != 0
    assert "not allowed" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
def test_repository_of_another_user_can_be_fetched(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    for folder, _, files in os.walk(upstream.path):
        os.chown(folder, 65534, 65534)
        for name in files:
            os.chown(Path(folder) / name, 65534, 65534)
    listed = run("ls-remote", "--heads", "--", str(upstream.path), cwd=tmp_path)
    assert (listed.code, listed.stderr) == (0, "")
    assert b"refs/heads/master" in listed.stdout


def test_timeout_kills_git_and_its_helpers(tmp_path: Path) -> None:
    marker = tmp_path / "helper.pid"
    alias = f"alias.hang=!sh -c 'echo $$ > {marker}; exec sleep 300'"
    with pytest.raises(GitError) as caught:
        run("-c", alias, "hang", cwd=tmp_path, timeout=1.0)
    assert caught.value.code == "git-timeout"
    assert not caught.value.permanent
    for _ in range(50):
        if not Path(f"/proc/{int(marker.read_text())}/cmdline").exists():
            return
        # A killed process stays visible until its adopted parent has taken note of it.
        if Path(f"/proc/{int(marker.read_text())}/cmdline").read_bytes() == b"":
            return
        time.sleep(0.1)
    pytest.fail("the helper is still running")


def test_git_that_a_signal_ended_answers_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nprintf 'one\\0'\necho 'Applying: mm: One'\nkill -9 $$\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    repository = Repository(tmp_path)
    for ask in (
        lambda: repository.run("am"),
        lambda: repository.resolve("master"),
        lambda: repository.is_ancestor("older", "newer"),
        lambda: list(repository.records("log", "-z", seconds=20.0)),
    ):
        with pytest.raises(GitError, match=r"git [a-z-]+ was ended by the system \(Killed\)") as caught:
            ask()
        assert (caught.value.code, caught.value.permanent) == ("git-killed", False)


@pytest.mark.parametrize(("number", "killed"), [(1, False), (128, False), (129, False), (137, True), (159, True)])
def test_exit_code_that_stands_for_a_signal_is_told_from_one_of_git_s_own(
    tmp_path: Path, number: int, killed: bool
) -> None:
    words = ("-c", f"alias.end=!exit {number};", "end")
    if not killed:
        assert run(*words, cwd=tmp_path).code == number
        return
    with pytest.raises(GitError) as caught:
        run(*words, cwd=tmp_path)
    assert caught.value.code == "git-killed"


def test_failure_tells_what_git_said(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    with pytest.raises(GitError, match=r"git show-ref: .*not-there"):
        Repository(upstream.path / ".git").output("show-ref", "--verify", "refs/heads/not-there")


def test_commits_come_newest_first_with_all_facts(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    head = upstream.commit({"README": "Ünïcode\n"}, "README: Say it with ümlauts")
    newest, older, oldest = Repository(upstream.path / ".git").commits("master")
    assert newest.sha == head
    assert newest.subject == "README: Say it with ümlauts"
    assert newest.author == "Ada Author <ada@example.org>"
    assert newest.parents == (older.sha,)
    assert oldest.parents == ()
    assert newest.committed_at > older.committed_at
    assert newest.tree == upstream.git("rev-parse", "HEAD^{tree}")


def test_commit_without_subject_and_from_the_far_future_is_read(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    tree = upstream.git("rev-parse", "HEAD^{tree}")
    raw = f"tree {tree}\nauthor A <a@x> 99999999999999 +0000\ncommitter A <a@x> 99999999999999 +0000\n\n"
    sha = git(upstream.path, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=raw.encode())
    commit = Repository(upstream.path / ".git").commits(sha)[0]
    assert commit.subject == ""
    assert commit.committed_at.year >= 1970


def test_objects_are_read_one_after_the_other(tmp_path: Path) -> None:
    upstream = small_tree(tmp_path / "up")
    with Repository(upstream.path / ".git").objects() as reader:
        found = reader.read("master:README")
        assert found is not None
        assert found[1] == b"A small tree.\n"
        assert reader.read("master:nothing") is None
        assert reader.read(found[0]) == found
