"""Each step of a branch is a row, and nothing that a branch leaves behind is lost."""

import pytest

from server.core.programs.git import GitError
from server.sources.mirror import mirror, old_ref, ref_of, tag_ref, tree_ref
from server.sources.models import Branch, HeadMove, Revision, Tag, Tree
from server.sources.trees import fetch
from server.sources.trees.fetch import fetch_tree
from server.sources.trees.heads import MOST_REVISIONS
from tests.sources.posting import Upstream, git


def moves(tree: Tree, branch: str = "master") -> list[tuple[str, str | None, str | None]]:
    rows = HeadMove.objects.filter(branch__tree=tree, branch__name=branch).order_by("id")
    return [(m.kind, m.before.sha if m.before else None, m.after.sha if m.after else None) for m in rows]


def mirrored(ref: str) -> str | None:
    return mirror().resolve(ref)


def test_created_advanced_and_forced_steps_are_rows(fetched: Tree, upstream: Upstream) -> None:
    first = upstream.git("rev-parse", "HEAD")
    second = upstream.commit({"README": "to be dropped\n"})
    fetch_tree(tree=fetched)
    upstream.git("reset", "-q", "--hard", first)
    third = upstream.commit({"README": "instead\n"})
    fetch_tree(tree=fetched)
    assert moves(fetched) == [("created", None, first), ("advanced", first, second), ("forced", second, third)]
    assert mirrored(old_ref(second)) == second
    assert mirrored(old_ref(first)) is None
    assert ref_of(Revision.objects.get(sha=second)) == old_ref(second)
    assert ref_of(Revision.objects.get(sha=first)) == tree_ref(fetched, "master")


def test_deleted_branch_keeps_row_head_and_commits_and_may_come_back(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    upstream.git("checkout", "-q", "-b", "work")
    last = upstream.commit({"README": "work\n"})
    fetch_tree(tree=tree)
    upstream.git("checkout", "-q", "master")
    upstream.git("branch", "-q", "-D", "work")
    assert fetch_tree(tree=tree) == []
    branch = Branch.objects.get(name="work")
    assert branch.deleted_at
    assert branch.head
    assert branch.head.sha == last
    assert mirrored(tree_ref(tree, "work")) is None
    assert mirrored(old_ref(last)) == last
    assert fetch_tree(tree=tree) == []
    upstream.git("branch", "-q", "work", "master")
    fetch_tree(tree=tree)
    master = upstream.git("rev-parse", "master")
    expected = [("created", None, last), ("deleted", last, None), ("restored", last, master)]
    assert moves(tree, "work") == expected
    branch.refresh_from_db()
    assert branch.deleted_at is None


def test_branch_that_is_no_longer_watched_is_not_called_deleted(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    upstream.git("branch", "work")
    fetch_tree(tree=tree)
    tree.branch_patterns = ["master"]
    fetch_tree(tree=tree)
    assert Branch.objects.get(name="work").deleted_at is None


def test_name_may_turn_into_a_folder_and_back(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["*"]
    upstream.git("branch", "topic")
    fetch_tree(tree=tree)
    upstream.git("branch", "-q", "-m", "topic", "topic/one")
    fetch_tree(tree=tree)
    assert (tree.last_error, mirrored(tree_ref(tree, "topic/one"))) == ("", upstream.git("rev-parse", "master"))
    upstream.git("branch", "-q", "-m", "topic/one", "topic")
    fetch_tree(tree=tree)
    assert tree.last_error == ""
    assert mirrored(tree_ref(tree, "topic")) == upstream.git("rev-parse", "master")
    assert [kind for kind, _, _ in moves(tree, "topic")] == ["created", "deleted", "restored"]


def test_ref_of_a_branch_no_longer_watched_makes_way(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["topic"]
    upstream.git("checkout", "-q", "-b", "topic")
    left = upstream.commit({"README": "left\n"})
    fetch_tree(tree=tree)
    upstream.git("checkout", "-q", "master")
    upstream.git("branch", "-q", "-m", "topic", "topic/one")
    tree.branch_patterns = ["topic/one"]
    fetch_tree(tree=tree)
    assert tree.last_error == ""
    assert mirrored(old_ref(left)) == left
    assert mirrored(tree_ref(tree, "topic/one")) == left


@pytest.mark.parametrize("step", ["_make_way", "record_steps", "_update_refs"])
def test_poll_that_was_cut_off_is_made_up_for(
    fetched: Tree, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Cut off twice, with the branch forced in between: what it leaves is kept, and the row ends at the right head."""
    left = upstream.commit({"README": "left behind\n"})
    with monkeypatch.context() as patch:

        def killed(*_args: object, **_kwargs: object) -> None:
            raise GitError("git-failed", "killed")

        patch.setattr(fetch, step, killed)
        fetch_tree(tree=fetched)
        assert "killed" in fetched.last_error
    recorded = Branch.objects.get().head
    assert recorded
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    head = upstream.commit({"README": "instead\n"})
    fetch_tree(tree=fetched)
    row = Branch.objects.get()
    assert row.head
    assert (row.head.sha, mirrored(tree_ref(fetched, "master"))) == (head, head)
    if recorded.sha == left:
        assert mirrored(old_ref(left)) == left


def test_row_and_ref_that_differ_are_both_kept(fetched: Tree, upstream: Upstream) -> None:
    """As a predecessor leaves them that was killed in between, and then the branch is forced."""
    start = upstream.git("rev-parse", "HEAD")
    in_row = upstream.commit({"README": "in the row\n"})
    fetch_tree(tree=fetched)
    in_ref = upstream.commit({"README": "in the ref\n"})
    mirror().output("fetch", "--quiet", upstream.path.as_uri(), f"+master:{tree_ref(fetched, 'master')}")
    upstream.git("reset", "-q", "--hard", start)
    upstream.commit({"README": "instead\n"})
    fetch_tree(tree=fetched)
    assert [mirrored(old_ref(sha)) for sha in (in_row, in_ref)] == [in_row, in_ref]
    assert mirrored(tree_ref(fetched, "master")) == upstream.git("rev-parse", "HEAD")


def test_row_without_its_ref_is_kept(fetched: Tree, upstream: Upstream) -> None:
    left = upstream.commit({"README": "only in the row\n"})
    fetch_tree(tree=fetched)
    mirror().output("update-ref", tree_ref(fetched, "master"), f"{left}~1")
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    fetch_tree(tree=fetched)
    assert mirrored(old_ref(left)) == left


def test_lost_mirror_is_fetched_again_and_nothing_has_moved(fetched: Tree, upstream: Upstream) -> None:
    repository = mirror()
    repository.output("update-ref", "-d", tree_ref(fetched, "master"))
    assert fetch_tree(tree=fetched) == []
    assert mirrored(tree_ref(fetched, "master")) == upstream.git("rev-parse", "master")
    assert [kind for kind, _, _ in moves(fetched)] == ["created"]


def test_thousand_new_commits_are_recorded_up_to_a_bound_which_is_said(fetched: Tree, upstream: Upstream) -> None:
    start = upstream.git("rev-parse", "HEAD")
    more = MOST_REVISIONS + 30
    lines = ["reset refs/heads/master", f"from {start}", ""]
    for number in range(more):
        person = f"Ada <ada@example.org> {1_793_540_000 + number} +0000"
        lines += ["commit refs/heads/master", f"committer {person}", "data 1", "x", ""]
    git(upstream.path, "fast-import", "--quiet", "--force", stdin="\n".join(lines).encode())
    known = Revision.objects.count()
    fetch_tree(tree=fetched)
    assert Revision.objects.count() == known + MOST_REVISIONS
    decision = HeadMove.objects.latest("id").decision
    assert "30 more revisions came with it and are not recorded" in decision


def test_tags_are_kept_and_a_moved_one_has_a_row_for_each_commit(tree: Tree, upstream: Upstream) -> None:
    tree.tag_patterns = ["v*"]
    first = upstream.git("rev-parse", "HEAD")
    upstream.git("-c", "user.name=A", "-c", "user.email=a@x", "tag", "-a", "-m", "one", "v1")
    moved = upstream.git("rev-parse", "v1")
    upstream.git("tag", "other")
    upstream.git("tag", "vtree", "HEAD^{tree}")
    fetch_tree(tree=tree)
    assert tree.last_error == ""
    assert mirrored(tag_ref(tree, "v1")) == first
    second = upstream.commit({"README": "more\n"})
    upstream.git("tag", "-f", "v1")
    fetch_tree(tree=tree)
    assert list(Tag.objects.order_by("id").values_list("name", "revision__sha")) == [("v1", first), ("v1", second)]
    assert mirror().output("rev-parse", old_ref(moved)).decode().strip() == moved
    upstream.git("tag", "-d", "v1")
    fetch_tree(tree=tree)
    assert mirrored(tag_ref(tree, "v1")) == second


def test_step_from_a_lost_head_is_forced(fetched: Tree) -> None:
    # Nobody can say that it went forward.
    branch = Branch.objects.get()
    assert branch.head
    Revision.objects.filter(pk=branch.head.pk).update(sha="1" * 40)
    fetch_tree(tree=fetched)
    assert HeadMove.objects.latest("id").kind == "forced"
