"""Which revisions are measured, and what is said about those that are not."""

from datetime import timedelta

import pytest

from server.core import clock
from server.sources.models import HeadMove, Tree, WantedRevision
from server.sources.trees.fetch import fetch_tree
from tests.sources.posting import NOON, Upstream, git


def wanted(tree: Tree) -> list[tuple[str, str, str]]:
    rows = WantedRevision.objects.filter(tree=tree).order_by("id")
    return [(row.revision.sha, row.why, row.detail) for row in rows.select_related("revision")]


def decision(branch: str = "master") -> str:
    return HeadMove.objects.filter(branch__name=branch).latest("id").decision


def merge(upstream: Upstream, message: str, committer: str, minute: int) -> str:
    date = f"{NOON + 60 * minute} +0000"
    side = git(upstream.path, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "side", GIT_COMMITTER_DATE=date)
    parents = ("-p", "HEAD", "-p", side)
    words = ("commit-tree", "HEAD^{tree}", *parents, "-m", message)
    commit = git(upstream.path, *words, GIT_COMMITTER_EMAIL=committer, GIT_COMMITTER_DATE=date)
    upstream.git("reset", "-q", "--hard", commit)
    return commit


def test_each_new_head_is_wanted(fetched: Tree, upstream: Upstream) -> None:
    first = upstream.git("rev-parse", "HEAD")
    upstream.commit({"README": "passed by\n"})
    second = upstream.commit({"README": "more\n"})
    fetch_tree(tree=fetched)
    assert wanted(fetched) == [(first, "head", "master"), (second, "head", "master")]
    assert decision() == "wanted: head"


def test_limit_counts_the_heads_of_a_day(tree: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.heads_per_day = 2
    for n in range(3):
        upstream.commit({"README": f"{n}\n"})
        fetch_tree(tree=tree)
    assert len(wanted(tree)) == 2
    assert decision() == "not wanted: 2 of 2 heads in 24 hours already"
    later = clock.now() + timedelta(hours=25)
    monkeypatch.setattr(clock, "now", lambda: later)
    upstream.commit({"README": "next day\n"})
    fetch_tree(tree=tree)
    assert len(wanted(tree)) == 3


def test_head_that_the_limit_left_out_is_wanted_when_the_day_is_over_and_it_still_stands(
    tree: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.heads_per_day = 1
    fetch_tree(tree=tree)
    passed_by = upstream.commit({"README": "passed by\n"})
    fetch_tree(tree=tree)
    head = upstream.commit({"README": "left out\n"})
    for _ in range(2):
        fetch_tree(tree=tree)
        assert len(wanted(tree)) == 1
    later = clock.now() + timedelta(hours=25)
    monkeypatch.setattr(clock, "now", lambda: later)
    for _ in range(2):
        assert fetch_tree(tree=tree) == []
        assert [sha for sha, _, _ in wanted(tree)][1:] == [head]
    assert passed_by not in [sha for sha, _, _ in wanted(tree)]


def test_newest_head_wins_when_several_come_at_once(tree: Tree, upstream: Upstream) -> None:
    tree.heads_per_day = 1
    tree.branch_patterns = ["*"]
    for name in ("a-newest", "b-oldest"):
        upstream.git("branch", name)
    upstream.git("checkout", "-q", "a-newest")
    upstream.commit({"README": "second newest\n"})
    upstream.git("checkout", "-q", "master")
    newest = upstream.commit({"README": "newest\n"})
    fetch_tree(tree=tree)
    assert wanted(tree) == [(newest, "head", "master")]
    assert decision("a-newest") == decision("b-oldest") == "not wanted: 1 of 1 heads in 24 hours already"


def test_tree_without_heads_wants_none(tree: Tree) -> None:
    tree.heads_per_day = 0
    fetch_tree(tree=tree)
    assert wanted(tree) == []
    assert decision() == "not wanted: no heads of this tree are measured"


def test_two_branches_at_one_commit_want_it_once(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    upstream.git("branch", "next")
    fetch_tree(tree=tree)
    assert len(wanted(tree)) == 1
    assert decision("master") == "wanted already as new head (next)"


def test_every_merge_of_a_named_person_is_wanted(fetched: Tree, upstream: Upstream) -> None:
    fetched.merges_by = ["Linus@example.org"]
    fetched.heads_per_day = 0
    first = merge(upstream, "Merge one", "linus@example.org", 50)
    merge(upstream, "Merge two", "somebody@example.org", 51)
    third = merge(upstream, "Merge three", "linus@EXAMPLE.org", 52)
    upstream.commit({"README": "no merge\n"})
    fetch_tree(tree=fetched)
    why = ("merge", "master: merged by linus@example.org")
    assert wanted(fetched)[1:] == [(first, *why), (third, *why)]
    said = "not wanted: no heads of this tree are measured; wanted: 2 merges by linus@example.org"
    assert decision() == said


def test_merge_that_is_the_head_counts_for_no_limit(fetched: Tree, upstream: Upstream) -> None:
    fetched.merges_by = ["linus@example.org"]
    fetched.heads_per_day = 2
    merge(upstream, "Merge", "linus@example.org", 50)
    fetch_tree(tree=fetched)
    already = "wanted already as merge by a named person (master: merged by linus@example.org)"
    assert decision() == f"{already}; wanted: 1 merge by linus@example.org"
    upstream.commit({"README": "no merge\n"})
    fetch_tree(tree=fetched)
    assert decision() == "wanted: head"


def test_rebased_head_of_the_same_content_is_not_wanted_again(fetched: Tree, upstream: Upstream) -> None:
    fetched.rebasing = True
    before = upstream.git("rev-parse", "HEAD")
    upstream.git("commit", "-q", "--amend", "-m", "The same, rebased")
    fetch_tree(tree=fetched)
    assert decision() == f"not wanted: same content as {before[:12]}, wanted already"
    fetched.rebasing = False
    upstream.git("commit", "-q", "--amend", "-m", "The same again")
    fetch_tree(tree=fetched)
    assert decision() == "wanted: head"


def test_of_many_old_tags_only_the_newest_is_wanted(tree: Tree, upstream: Upstream) -> None:
    tree.tag_patterns = ["v*"]
    tree.heads_per_day = 0
    shas = []
    for n in range(4):
        shas.append(upstream.commit({"README": f"{n}\n"}))
        upstream.git("tag", f"v{9 - n}")
    fetch_tree(tree=tree)
    assert tree.tags.count() == 4
    assert wanted(tree) == [(shas[-1], "tag", "v6")]


def test_new_tags_are_wanted_whatever_the_limit(fetched: Tree, upstream: Upstream) -> None:
    fetched.tag_patterns = ["v*"]
    fetched.heads_per_day = 1
    upstream.git("tag", "v1")
    fetch_tree(tree=fetched)
    shas = []
    for n in (2, 3):
        shas.append(upstream.commit({"README": f"{n}\n"}))
        upstream.git("tag", f"v{n}")
    upstream.git("tag", "nightly")
    fetch_tree(tree=fetched)
    assert wanted(fetched)[1:] == [(shas[0], "tag", "v2"), (shas[1], "tag", "v3")]
    assert decision() == "wanted already as tag (v3)"


def test_tags_that_a_wider_pattern_lets_in_are_not_all_measured(tree: Tree, upstream: Upstream) -> None:
    tree.heads_per_day = 0
    date = f"{NOON - 90 * 86_400} +0000"
    old = git(upstream.path, "commit-tree", "HEAD^{tree}", "-m", "Old", GIT_COMMITTER_DATE=date)
    upstream.git("tag", "v5", old)
    upstream.git("tag", "v6")
    tree.tag_patterns = ["v6"]
    fetch_tree(tree=tree)
    tree.tag_patterns = ["v*"]
    fetch_tree(tree=tree)
    assert tree.tags.count() == 2
    assert [detail for _, _, detail in wanted(tree)] == ["v6"]


def test_same_commit_may_be_wanted_in_two_trees(fetched: Tree) -> None:
    other = Tree.objects.create(name="other", url=fetched.url, branch_patterns=["master"])
    fetch_tree(tree=other)
    assert [sha for sha, _, _ in wanted(other)] == [sha for sha, _, _ in wanted(fetched)]
