"""Which base a series gets, what told it, and that a guess never passes for more."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from server.core import clock
from server.core.errors import DomainError
from server.sources.applying.application import apply_series
from server.sources.bases import base_places
from server.sources.bases.base_places import Clues, Rank, places_for
from server.sources.mirror import mirror, ref_of, series_ref
from server.sources.models import HeadMove, MailingList, Series, Tree
from server.sources.trees.fetch import fetch_tree
from tests.builders import build_list
from tests.sources.applying import applied, base_of, commits_of, store, with_trailer
from tests.sources.posting import DIFF, Upstream, lines, mail, small_tree, two_patches

S = Series.State
_INDEX = re.compile(rb"^index [^\n]*\n", re.MULTILINE)
_NOWHERE = "1234567890" * 4


def without_index(mails: list[bytes]) -> list[bytes]:
    return [_INDEX.sub(b"", raw) for raw in mails]


def with_subject(mails: list[bytes], word: str) -> list[bytes]:
    return [raw.replace(b"[PATCH", b"[PATCH " + word.encode(), 1) for raw in mails]


@pytest.fixture
def ready(fetched: Tree, linux_mm: MailingList) -> MailingList:
    return linux_mm


@pytest.fixture
def two_branches(tree: Tree, linux_mm: MailingList, upstream: Upstream) -> MailingList:
    """Branch `linux-6.1.y` where the tree began, tagged v6.1.7, and `master`, which went on with mm/rmap.c."""
    upstream.git("branch", "linux-6.1.y")
    upstream.git("tag", "v6.1.7")
    upstream.commit({"mm/rmap.c": lines(line3="gone on")})
    tree.branch_patterns, tree.tag_patterns = ["master", "linux-6.1.y"], ["v*"]
    tree.save()
    fetch_tree(tree=tree)
    return linux_mm


def test_base_commit_of_a_watched_branch_is_taken(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    old = commits.split("..")[0]
    upstream.commit({"mm/memory.c": lines(line7="something else")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, upstream.mails(commits, f"--base={old}"))
    assert (series.state, series.reason) == (S.APPLIED, f"applied to {old[:12]}: base-commit, in stable/master")
    assert (base_of(series), series.base_how, series.base_certain) == (old, "base-commit, in stable/master", True)


def test_base_commit_that_the_branch_was_forced_away_from_is_taken(ready: MailingList, upstream: Upstream) -> None:
    yesterday = upstream.commit({"mm/memory.c": lines(line20="yesterday")})
    fetch_tree(tree=Tree.objects.get())
    commits = two_patches(upstream)
    named = upstream.mails(commits, f"--base={yesterday}")
    unnamed = [raw.replace(b"mm: Clear", b"mm: Wipe") for raw in upstream.mails(commits, stamp=1_793_600_000)]
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    upstream.commit({"mm/memory.c": lines(line20="today")})
    fetch_tree(tree=Tree.objects.get())
    assert HeadMove.objects.filter(kind=HeadMove.Kind.FORCED).exists()
    for mails in (named, unnamed):
        series = applied(ready, mails)
        assert (base_of(series), series.base_certain) == (yesterday, True)
        assert series.base_how.endswith("in stable/master as it was before")
        Series.objects.update(state=S.SUPERSEDED)


def test_base_commit_may_be_named_by_the_object_of_its_tag(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    head = upstream.git("rev-parse", "HEAD")
    upstream.git("-c", "user.name=x", "-c", "user.email=x@x", "tag", "-a", "-m", "A tag", "v1")
    Tree.objects.update(tag_patterns=["v*"])
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, with_trailer(upstream.mails(commits), f"base-commit: {upstream.git('rev-parse', 'v1')}"))
    assert series.state == S.APPLIED, series.reason
    assert (base_of(series), series.base_certain) == (head, True)


@pytest.mark.parametrize("written", ["v6.1.7", "short"])
def test_base_commit_that_people_wrote_by_hand_is_found(
    two_branches: MailingList, upstream: Upstream, written: str
) -> None:
    old = upstream.git("rev-parse", "v6.1.7")
    upstream.git("checkout", "-q", "linux-6.1.y")
    mails = upstream.mails(two_patches(upstream))
    named = old[:12] if written == "short" else written
    series = applied(two_branches, with_trailer(without_index(mails), f"base-commit: {named} (or so)"))
    assert (base_of(series), series.base_how, series.base_certain) == (old, "base-commit, in stable/master", True)


@pytest.mark.parametrize("written", ["mm-unstable", "HEAD", "refs/heads/master", "--all", "a1b2c3d"])
def test_base_commit_that_names_nothing_here_is_not_lost(ready: MailingList, upstream: Upstream, written: str) -> None:
    series = applied(ready, with_trailer(upstream.mails(two_patches(upstream)), f"base-commit: {written}"))
    assert f"; base-commit {written} is in no watched tree" in series.base_how


def test_mirror_that_is_too_slow_as_yet_does_not_refuse_a_base_commit(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = upstream.git("rev-parse", "HEAD")
    series = store(ready, upstream.mails(two_patches(upstream), f"--base={head}"))
    with monkeypatch.context() as patched:
        patched.setattr(base_places, "_SECONDS", 0.0)
        for _ in range(4):
            Series.objects.update(tried_at=clock.now() - timedelta(hours=1))
            with pytest.raises(DomainError, match=f"which branches hold base-commit {head} is not known yet"):
                apply_series(series=series)
    Series.objects.update(tried_at=clock.now() - timedelta(hours=1))
    apply_series(series=series)
    assert (series.state, base_of(series), series.base_certain) == (S.APPLIED, head, True)


def test_base_commit_that_is_a_patch_of_ours_is_taken_and_stays_foreign_code(
    ready: MailingList, upstream: Upstream
) -> None:
    first = applied(ready, upstream.mails(two_patches(upstream)))
    made = commits_of(first)[0]
    series = applied(ready, [mail("[PATCH] README: Grow", DIFF + f"\nbase-commit: {made}\n", message_id="readme@x")])
    assert (base_of(series), series.base_certain) == (made, True)
    assert series.base_how == f"base-commit, in patch 1/2 of <{first.root_message_id}>"
    assert series.base is not None
    assert ref_of(series.base) == series_ref(first.pk, 1)


def test_base_commit_that_nobody_watches_is_not_trusted(ready: MailingList, upstream: Upstream) -> None:
    head = upstream.git("rev-parse", "HEAD")
    tree = upstream.git("rev-parse", "HEAD^{tree}")
    author = ["-c", "user.name=x", "-c", "user.email=x@x"]
    dangling = mirror().output(*author, "commit-tree", tree, "-p", head, "-m", "x").decode().strip()
    series = applied(ready, [mail("[PATCH] README: Grow", DIFF + f"\nbase-commit: {dangling}\n")])
    assert (base_of(series), series.base_certain) == (head, False)
    assert f"base-commit {dangling} is in no watched tree" in series.base_how


def test_unknown_base_commit_is_named_when_only_a_guess_is_left(ready: MailingList, upstream: Upstream) -> None:
    mails = without_index(upstream.mails(two_patches(upstream)))
    series = applied(ready, with_trailer(mails, f"base-commit: {_NOWHERE}"))
    assert series.base_certain is False
    assert series.base_how == (
        "guessed: it is the tree of the list; newest head that it applies to, stable/master; "
        f"base-commit {_NOWHERE} is in no watched tree"
    )


def test_unknown_base_commit_gives_way_to_the_blobs(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    old = commits.split("..")[0]
    upstream.commit({"mm/memory.c": lines(line7="something else")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, with_trailer(upstream.mails(commits), f"base-commit: {_NOWHERE}"))
    assert (base_of(series), series.base_certain) == (old, True)
    assert f"; base-commit {_NOWHERE} is in no watched tree" in series.base_how


def test_base_commit_on_which_it_does_not_apply_is_said(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    wrong = upstream.commit({"mm/memory.c": lines(line7="taken", line30="taken")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, with_trailer(upstream.mails(commits), f"base-commit: {wrong}"))
    assert (base_of(series), series.base_certain) == (commits.split("..")[0], False)
    assert f"; it does not apply to {wrong[:12]} (base-commit, in stable/master)" in series.base_how


def test_all_pre_images_tell_the_newest_commit_that_holds_them(ready: MailingList, upstream: Upstream) -> None:
    mails = upstream.mails(two_patches(upstream))
    newest = upstream.commit({"README": "Nothing that the series touches.\n"})
    upstream.commit({"mm/memory.c": "all is new\n"})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert (base_of(series), series.base_certain) == (newest, True)
    assert series.base_how == "the pre-image is in stable/master"


def test_part_of_the_pre_images_is_a_guess(ready: MailingList, upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "-b", "private")
    upstream.commit({"mm/rmap.c": "a local line\n" + lines()})
    upstream.commit({"mm/rmap.c": "a local line\n" + lines(line9="new"), "mm/memory.c": lines(line9="new")})
    mails = upstream.mails("HEAD~1..HEAD")
    upstream.git("checkout", "-q", "master")
    newest = upstream.git("rev-parse", "HEAD")
    upstream.commit({"mm/memory.c": lines(line30="gone on")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert (base_of(series), series.base_certain) == (newest, False)
    words = "guessed: it is the tree of the list, and 1 of 2 pre-images are there, in stable/master"
    assert series.base_how == words


@pytest.mark.parametrize(
    ("word", "expected", "how"),
    [
        ("6.1.y", "v6.1.7", "guessed: the subject names 6.1.y; newest head that it applies to, stable/linux-6.1.y"),
        ("6.1", "v6.1.7", "guessed: the subject names 6.1; newest head that it applies to, stable/linux-6.1.y"),
        ("6.1.7", "v6.1.7", "guessed: the subject names v6.1.7; newest commit that it applies to, stable v6.1.7"),
        ("master", "master", "guessed: the subject names master; newest head that it applies to, stable/master"),
    ],
)
def test_words_of_the_subject_name_branch_or_tag(
    two_branches: MailingList, upstream: Upstream, word: str, expected: str, how: str
) -> None:
    series = applied(two_branches, with_subject(without_index(upstream.mails(two_patches(upstream))), word))
    assert (base_of(series), series.base_certain) == (upstream.git("rev-parse", f"{expected}^{{}}"), False)
    assert series.base_how == how


def test_version_that_nobody_watches_is_said(two_branches: MailingList, upstream: Upstream) -> None:
    series = applied(two_branches, with_subject(without_index(upstream.mails(two_patches(upstream))), "6.6.y"))
    assert series.base_certain is False
    assert series.base_how.endswith("; the subject names 6.6.y, which no watched branch or tag is")


def test_among_equal_branches_the_newest_is_guessed_and_the_others_that_differ_are_named(
    two_branches: MailingList, upstream: Upstream
) -> None:
    upstream.git("checkout", "-q", "-b", "work", "linux-6.1.y")
    upstream.commit({"mm/rmap.c": lines(line30="changed")})
    mails = without_index(upstream.mails("HEAD~1..HEAD"))
    upstream.git("checkout", "-q", "master")
    series = applied(two_branches, mails)
    assert base_of(series) == upstream.git("rev-parse", "master")
    assert series.base_certain is False
    assert series.base_how.endswith("stable/master; stable/linux-6.1.y differ at the changed files")


def test_addresses_then_paths_tell_the_tree(fetched: Tree, tmp_path: Path, db: None) -> None:
    other = small_tree(tmp_path / "other")
    other.commit({"README": "Younger.\n"})
    younger = Tree.objects.create(name="net", url=str(other.path), branch_patterns=["master"], paths=["net/"])
    fetch_tree(tree=younger)
    Tree.objects.filter(pk=fetched.pk).update(addresses=["linux-mm@example.org"], subject_tags=["mm"], paths=["mm/"])

    def best(words: str = "", address: str = "", path: str = "") -> tuple[str, Rank]:
        place = places_for(Clues(frozenset({words}), frozenset({address}), frozenset({path}), None))[0]
        return place.label, place.rank

    assert best() == ("net/master", Rank.NOTHING)
    assert best(path="mm/memory.c") == ("stable/master", Rank.PATH)
    assert best(address="linux-mm@example.org", path="net/x.c") == ("stable/master", Rank.ADDRESS)
    assert best(words="net", address="linux-mm@example.org") == ("net/master", Rank.SUBJECT)
    assert best(words="mm", path="net/x.c") == ("stable/master", Rank.SUBJECT)


def test_imported_mails_of_no_list_find_their_tree(fetched: Tree, linux_mm: MailingList, upstream: Upstream) -> None:
    imported = build_list("imported", tree=None, proof=MailingList.Proof.ARCHIVE)
    series = applied(imported, without_index(upstream.mails(two_patches(upstream))))
    assert series.base_how == "guessed: nothing names it; newest head that it applies to, stable/master"
    assert series.base_certain is False


def test_branch_that_the_remote_deleted_is_no_guess(two_branches: MailingList, upstream: Upstream) -> None:
    upstream.git("branch", "-q", "-D", "linux-6.1.y")
    fetch_tree(tree=Tree.objects.get())
    assert clock.now() - timedelta(minutes=1) < Tree.objects.get().branches.get(name="linux-6.1.y").deleted_at  # type: ignore[operator]
    places = places_for(Clues(frozenset(), frozenset(), frozenset(), None))
    assert [p.label for p in places] == ["stable/master"]
