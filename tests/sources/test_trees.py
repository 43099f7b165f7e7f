import pytest
from django.core.management import CommandError, call_command

from server.sources.mirror import mirror, tree_ref
from server.sources.models import Branch, Revision, Tree
from server.sources.trees.fetch import claim_due_trees, fetch_tree
from tests.sources.posting import Upstream, two_patches


def branch_head(tree: Tree) -> str:
    head = tree.branches.get(name="master").head
    assert head is not None
    return head.sha


def test_first_fetch_records_head_and_its_parent_only(tree: Tree, upstream: Upstream) -> None:
    newest = upstream.commit({"README": "Three commits now.\n"}, "README: Count")
    (head,) = fetch_tree(tree=tree)
    assert (head.sha, head.subject, head.author) == (newest, "README: Count", "Ada Author <ada@example.org>")
    assert Revision.objects.count() == 2
    assert head.parent is not None
    assert head.parent.sha == upstream.git("rev-parse", "HEAD~1")
    assert head.tree_sha == upstream.git("rev-parse", "HEAD^{tree}")
    assert mirror().resolve(tree_ref(tree, "master")) == newest


def test_later_fetch_records_each_new_commit_with_its_parent(fetched: Tree, upstream: Upstream) -> None:
    before = branch_head(fetched)
    shas = [upstream.commit({"README": f"{n}\n"}) for n in range(3)]
    fetch_tree(tree=fetched)
    rows = [Revision.objects.get(sha=sha) for sha in shas]
    assert [r.parent and r.parent.sha for r in rows] == [before, shas[0], shas[1]]
    assert branch_head(fetched) == shas[-1]


def test_merged_branch_counts_by_first_parents(fetched: Tree, upstream: Upstream) -> None:
    side = two_patches(upstream).split("..")[1]
    upstream.git("-c", "user.name=A", "-c", "user.email=a@x", "merge", "-q", "--no-ff", "-m", "Merge", side)
    known = Revision.objects.count()
    fetch_tree(tree=fetched)
    assert Revision.objects.count() == known + 1


def test_nothing_new_moves_nothing(fetched: Tree) -> None:
    known = Revision.objects.count()
    assert fetch_tree(tree=fetched) == []
    assert Revision.objects.count() == known


def test_forced_update_keeps_old_revisions_and_their_commits(fetched: Tree, upstream: Upstream) -> None:
    gone = upstream.commit({"README": "to be dropped\n"})
    fetch_tree(tree=fetched)
    upstream.git("reset", "-q", "--hard", "HEAD~1")
    kept = upstream.commit({"README": "instead\n"})
    fetch_tree(tree=fetched)
    assert branch_head(fetched) == kept
    assert Revision.objects.filter(sha=gone).exists()
    assert mirror().resolve(gone) == gone


def test_branch_set_back_to_an_older_commit_moves_back(fetched: Tree, upstream: Upstream) -> None:
    old = branch_head(fetched)
    upstream.commit({"README": "more\n"})
    fetch_tree(tree=fetched)
    upstream.git("reset", "-q", "--hard", old)
    assert [r.sha for r in fetch_tree(tree=fetched)] == [old]


def test_unreachable_tree_is_recorded_and_recovers(tree: Tree, upstream: Upstream) -> None:
    tree.url = str(upstream.path) + "-not-there"
    assert fetch_tree(tree=tree) == []
    failing_since = tree.failing_since
    assert failing_since
    assert "not-there" in tree.last_error
    fetch_tree(tree=tree)
    assert tree.failing_since == failing_since
    assert tree.failures == 2
    assert tree.fetched_at is None
    tree.url = str(upstream.path)
    tree.save()
    fetch_tree(tree=tree)
    recovered = Tree.objects.get()
    assert recovered.failures == 0
    assert recovered.failing_since is None
    assert recovered.last_error == ""


def test_missing_branch_is_named_and_the_others_are_fetched(tree: Tree) -> None:
    tree.branch_patterns = ["master", "for-next"]
    assert len(fetch_tree(tree=tree)) == 1
    assert tree.last_error == "no such branch: for-next"
    assert tree.failing_since
    assert tree.fetched_at
    assert tree.failures == 0


def test_tree_without_patterns_watches_the_branches_that_have_rows(tree: Tree) -> None:
    Tree.objects.update(branch_patterns=[])
    tree.refresh_from_db()
    Branch.objects.create(tree=tree, name="master")
    assert len(fetch_tree(tree=tree)) == 1
    assert tree.last_error == ""


def test_glob_takes_branches_as_they_come(tree: Tree, upstream: Upstream) -> None:
    tree.branch_patterns = ["linux-6.*.y", "master"]
    upstream.git("branch", "linux-6.1.y")
    upstream.git("branch", "linux-5.15.y")
    fetch_tree(tree=tree)
    upstream.git("branch", "linux-6.12.y")
    fetch_tree(tree=tree)
    assert list(tree.branches.values_list("name", flat=True)) == ["linux-6.1.y", "linux-6.12.y", "master"]


def test_due_tree_is_given_out_once(tree: Tree) -> None:
    assert claim_due_trees() == [tree]
    assert claim_due_trees() == []
    Tree.objects.update(polled_at=None, enabled=False)
    assert claim_due_trees() == []


def test_command_fetches_and_names_what_is_wrong(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("fetch_tree", "stable")
    assert "1 branches moved" in capsys.readouterr().out
    with pytest.raises(CommandError, match="there is no tree nothing"):
        call_command("fetch_tree", "nothing")
    Tree.objects.update(url="/not/there")
    with pytest.raises(CommandError, match="not/there"):
        call_command("fetch_tree", "stable")
