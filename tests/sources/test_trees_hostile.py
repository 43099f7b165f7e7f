"""Names, commits and tricks of a hostile remote break neither its other branches nor other trees."""

import pytest

from server.sources.mirror import mirror, tree_ref
from server.sources.models import Branch, Revision, Tree
from server.sources.trees.fetch import LONGEST_NAME, fetch_tree, is_usable, select
from tests.sources.posting import Upstream, git


def packed(upstream: Upstream, names: list[str]) -> None:
    """Refs as a server may claim to have them, which git itself would not make beside each other."""
    head = upstream.git("rev-parse", "HEAD")
    lines = sorted(f"{head} refs/heads/{name}\n" for name in [*names, "master"])
    upstream.git("checkout", "-q", "--detach")
    upstream.git("pack-refs", "--all")
    header = "# pack-refs with: peeled fully-peeled sorted \n"
    (upstream.path / ".git" / "packed-refs").write_text(header + "".join(lines))


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        *((name, True) for name in ("master", "x86/mm", "linux-6.1.y", "for-next/core", "a_b", "v6.1+fixes", "b4/x@y")),
        *((name, False) for name in ("", "-x", "a//b", "a/.b", "a..b", "a.lock", "a/b.", "a b", "a\x07b", "ä", "a;b")),
        *((name, False) for name in ("a\u202eb", "$(id)", "<b>", "a" * (LONGEST_NAME + 1))),
    ],
)
def test_harmless_names_are_usable(name: str, usable: bool) -> None:
    assert is_usable(name) is usable


def test_strange_names_are_refused_with_a_reason_and_the_others_come(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    for name in ("$(reboot)", "\u202egnp", "x" * 200, "Master", "MASTER"):
        upstream.git("branch", name)
    assert len(fetch_tree(tree=tree)) == 3
    assert {b.name for b in Branch.objects.all()} == {"master", "Master", "MASTER"}
    assert tree.last_error.startswith(f"refused branch names with strange characters or more than {LONGEST_NAME} of")
    assert r"\u202egnp" in tree.last_error
    assert (tree.failures, tree.failing_since is None) == (0, False)


def test_branch_below_another_branch_is_refused(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    fetch_tree(tree=tree)
    packed(upstream, ["topic", "topic/one", "topic/one/two"])
    fetch_tree(tree=tree)
    assert {b.name for b in Branch.objects.all()} == {"master", "topic"}
    assert tree.last_error == "refused branch names below another branch: 'topic/one', 'topic/one/two'"
    assert mirror().resolve(tree_ref(tree, "topic"))


def test_flood_of_names_pushes_out_none_that_is_known() -> None:
    refs = {f"{n:06}": "0" * 40 for n in range(100_000)} | {"zebra": "1" * 40}
    chosen = select("branch", refs, ["*"], most=10, known={"zebra"})
    assert len(chosen.refs) == 10
    assert "zebra" in chosen.refs
    assert chosen.complaints == ("100001 branch names match, 10 are watched",)


def test_hundred_thousand_refs_beside_the_watched_one_are_left_alone(tree: Tree, upstream: Upstream) -> None:
    packed(upstream, [f"user/{n}/work" for n in range(100_000)])
    assert len(fetch_tree(tree=tree)) == 1
    assert (Branch.objects.count(), tree.last_error) == (1, "")


def test_tree_with_a_path_into_dot_git_does_not_get_into_the_mirror(tree: Tree, upstream: Upstream) -> None:
    blob = upstream.git("rev-parse", "HEAD:README")
    hooks = git(upstream.path, "mktree", stdin=f"100755 blob {blob}\tpost-checkout\n".encode())
    evil = git(upstream.path, "mktree", stdin=f"040000 tree {hooks}\t.git\n".encode())
    commit = upstream.git("commit-tree", evil, "-m", "Harmless change")
    upstream.git("update-ref", "refs/heads/master", commit)
    fetch_tree(tree=tree)
    assert "hasDotgit" in tree.last_error
    assert mirror().resolve(commit) is None


def test_old_oddities_of_real_histories_are_taken(tree: Tree, upstream: Upstream) -> None:
    lines = upstream.git("cat-file", "commit", "HEAD").replace("<ada@example.org>", "ada@example.org>", 1)
    lines = lines.replace(" +0000", " +51800")
    odd = git(upstream.path, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=lines.encode())
    upstream.git("update-ref", "refs/heads/master", odd)
    assert [head.sha for head in fetch_tree(tree=tree)] == [odd]
    assert tree.last_error == ""


def test_commit_with_a_subject_of_a_megabyte_and_a_date_in_the_far_future_is_recorded(
    tree: Tree, upstream: Upstream
) -> None:
    tree_sha = upstream.git("rev-parse", "HEAD^{tree}")
    person = b"\xff\xfe" * 500 + b" <a@x> 99999999999999 +0000"
    text = f"tree {tree_sha}\n".encode() + b"author " + person + b"\ncommitter " + person + b"\n\n" + b"x\xff" * 500_000
    commit = git(upstream.path, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=text)
    upstream.git("update-ref", "refs/heads/master", commit)
    fetch_tree(tree=tree)
    row = Revision.objects.get(sha=commit)
    assert len(row.subject) == 1000
    assert len(row.author) == 300
    assert row.committed_at.year == 9999


def test_branch_that_names_no_commit_is_complained_about(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    blob = upstream.git("rev-parse", "HEAD:README")
    (upstream.path / ".git/refs/heads/blob").write_text(f"{blob}\n")
    assert len(fetch_tree(tree=tree)) == 1
    assert tree.last_error == "did not come, or are no commits: branches blob"
