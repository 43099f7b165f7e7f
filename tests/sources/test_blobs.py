"""What index lines tell about the base: which blobs a series was made on, and where history holds them."""

from pathlib import Path

import pytest

from server.core.programs.git import Repository
from server.sources.bases.candidates import PreImages, content_at, merged_match, newest_match, pre_images
from server.sources.mail.diffs import Diff, FileChange
from tests.sources.posting import Upstream

A, B, C, NONE = "a" * 12, "b" * 12, "c" * 12, "0" * 12


def change(old: str | None, new: str | None, old_blob: str = A, new_blob: str = B) -> Diff:
    return Diff((FileChange(old, new, old_blob=old_blob, new_blob=new_blob),))


@pytest.fixture
def repository(tmp_path: Path) -> Upstream:
    return Upstream.create(tmp_path / "history")


def bare(upstream: Upstream) -> Repository:
    return Repository(upstream.path / ".git")


def blob(upstream: Upstream, path: str, commit: str = "HEAD") -> str:
    return upstream.git("rev-parse", f"{commit}:{path}")[:12]


def test_files_of_one_patch_tell_what_they_were() -> None:
    found = pre_images([Diff((*change("mm/a.c", "mm/a.c").files, *change("mm/b.c", "mm/b.c", C).files))])
    assert found == PreImages({"mm/a.c": A, "mm/b.c": C}, frozenset())
    assert found.complete


def test_what_the_series_made_itself_tells_nothing() -> None:
    series = [change("mm/a.c", "mm/a.c", A, B), change("mm/a.c", "mm/a.c", B, C), change(None, "mm/new.c", NONE, A)]
    series += [change("mm/new.c", "mm/new.c", A, B), change("mm/old.c", "mm/moved.c", C, C)]
    series += [change("mm/moved.c", "mm/moved.c", C, A)]
    assert pre_images(series) == PreImages({"mm/a.c": A, "mm/old.c": C}, frozenset())


def test_deleted_and_renamed_files_were_there_before() -> None:
    assert pre_images([change("gone.c", None, A, NONE)]).blobs == {"gone.c": A}


def test_files_without_an_index_line_are_untold() -> None:
    found = pre_images([change("mm/a.c", "mm/a.c", ""), change("mm/b.c", "mm/b.c", A)])
    assert found == PreImages({"mm/b.c": A}, frozenset({"mm/a.c"}))
    assert not found.complete


def test_only_new_files_name_no_base() -> None:
    assert not pre_images([change(None, "new.c", NONE)]).complete


def test_the_newest_commit_with_all_blobs_is_found(repository: Upstream) -> None:
    repository.commit({"a": "1\n", "b": "1\n", "c": "1\n"})
    repository.commit({"a": "2\n"})
    wanted = PreImages({"a": blob(repository, "a"), "b": blob(repository, "b")}, frozenset())
    repository.commit({"c": "2\n"})
    newest = repository.commit({"c": "3\n"})
    repository.commit({"b": "2\n"})
    repository.commit({"a": "3\n"})
    match = newest_match(bare(repository), repository.git("rev-parse", "HEAD"), wanted, seconds=10)
    assert match is not None
    assert (match.sha, match.full, match.searched) == (newest, True, True)


def test_a_change_that_was_taken_back_makes_the_head_right_again(repository: Upstream) -> None:
    repository.commit({"a": "1\n"})
    wanted = PreImages({"a": blob(repository, "a")}, frozenset())
    repository.commit({"a": "2\n"})
    head = repository.commit({"a": "1\n"})
    match = newest_match(bare(repository), head, wanted, seconds=10)
    assert match is not None
    assert match.sha == head


def test_where_not_all_blobs_are_known_most_of_them_count(repository: Upstream) -> None:
    repository.commit({"a": "1\n", "b": "1\n"})
    wanted = PreImages({"a": blob(repository, "a"), "b": blob(repository, "b"), "c": C}, frozenset())
    newest = repository.commit({"d": "1\n"})
    head = repository.commit({"a": "2\n", "b": "2\n"})
    match = newest_match(bare(repository), head, wanted, seconds=10)
    assert match is not None
    assert (match.sha, match.found, match.wanted, match.full) == (newest, 2, 3, False)


def test_blobs_that_exist_nowhere_match_nothing(repository: Upstream) -> None:
    head = repository.commit({"a": "1\n"})
    assert newest_match(bare(repository), head, PreImages({"a": C}, frozenset()), seconds=10) is None
    assert merged_match(bare(repository), [head], PreImages({"a": C}, frozenset()), seconds=10) is None


def test_a_commit_inside_a_merged_branch_is_found(repository: Upstream) -> None:
    repository.commit({"a": "1\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    inside = repository.commit({"a": "2\n"})
    wanted = PreImages({"a": blob(repository, "a"), "b": blob(repository, "b")}, frozenset())
    repository.commit({"a": "3\n"})
    repository.git("checkout", "-q", "master")
    repository.commit({"b": "2\n"})
    repository.git("-c", "user.name=x", "-c", "user.email=x@x", "merge", "-q", "--no-edit", "side")
    head = repository.git("rev-parse", "HEAD")
    line = newest_match(bare(repository), head, wanted, seconds=10)
    assert line is None or not line.full
    match = merged_match(bare(repository), [head], wanted, seconds=10)
    assert match is not None
    assert match.sha == inside


def test_names_of_files_are_taken_literally(repository: Upstream) -> None:
    repository.commit({"mm/[a]*.c": "1\n", "mm/a.c": "1\n", ":x": "1\n"})
    first = repository.git("rev-parse", "HEAD")
    wanted = PreImages({p: blob(repository, p) for p in ("mm/[a]*.c", ":x")}, frozenset())
    head = repository.commit({"mm/a.c": "2\n", "mm/[a]*.c": "2\n", ":x": "2\n"})
    match = newest_match(bare(repository), head, wanted, seconds=10)
    assert match is not None
    assert match.sha == first
    assert set(content_at(bare(repository), head, ["mm/[a]*.c", ":x", "none"])) == {"mm/[a]*.c", ":x"}


def test_a_search_that_takes_too_long_ends_and_says_so(repository: Upstream) -> None:
    repository.commit({"a": "1\n"})
    wanted = PreImages({"a": blob(repository, "a"), "b": C}, frozenset())
    head = repository.commit({"a": "1\n", "b": "1\n"})
    match = newest_match(bare(repository), head, wanted, seconds=0)
    assert match is not None
    assert (match.found, match.searched) == (1, False)
