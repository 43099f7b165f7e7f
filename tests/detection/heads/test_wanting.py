"""Wanted revisions become trials against the pinned reference, each at its place on its branch."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.detection.models import MeasuredHead
from server.detection.sweep import tend_branches
from server.lab.models import Machine, Trial
from server.sources.mirror import record_revisions
from server.sources.models import Tree, WantedRevision
from server.sources.trees.fetch import fetch_tree
from tests.builders import EPOCH, build_machine, build_revision
from tests.sources.posting import Upstream, small_tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return small_tree(tmp_path / "upstream")


@pytest.fixture
def tree(upstream: Upstream) -> Tree:
    """A tree whose branch was fetched once; there is a physical machine."""
    build_machine("h1", "haswell", virtual=False)
    tree = Tree.objects.create(
        name="stable",
        url=str(upstream.path),
        branch_patterns=["master"],
        tag_patterns=["v*"],
        rebasing=True,
        benchmarks=["mm-basic"],
    )
    fetch_tree(tree=tree)
    return tree


def pushed(tree: Tree, upstream: Upstream, text: str) -> str:
    sha = upstream.commit({"README": text})
    fetch_tree(tree=Tree.objects.get(pk=tree.pk))
    return sha


def forced_away(tree: Tree, upstream: Upstream) -> str:
    """The branch is forced to a history that shares nothing with its own."""
    upstream.git("checkout", "-q", "--orphan", "other")
    sha = upstream.commit({"README": "another history\n"})
    upstream.git("checkout", "-q", "-B", "master", "other")
    fetch_tree(tree=Tree.objects.get(pk=tree.pk))
    return sha


def measured() -> list[tuple[str, int, str]]:
    heads = MeasuredHead.objects.select_related("revision", "reference").order_by("place")
    return [(head.revision.sha, head.place, head.reference.sha) for head in heads]


def outcome(sha: str) -> str:
    return WantedRevision.objects.get(revision__sha=sha).outcome


def test_first_head_is_pinned_and_later_ones_count_first_parents(
    tree: Tree, upstream: Upstream, settings: Settings
) -> None:
    first = upstream.git("rev-parse", "HEAD")
    assert tend_branches() == 1
    upstream.commit({"README": "passed by\n"})
    second = pushed(tree, upstream, "measured\n")
    assert tend_branches() == 1
    assert measured() == [(first, 2, first), (second, 4, first)]
    trial = Trial.objects.get(patched__sha=second)
    assert (trial.purpose, trial.base.sha, trial.looks) == (Trial.Purpose.HEAD, first, [settings.HEAD_BOOTS])
    assert tend_branches() == 0
    assert Trial.objects.count() == 2


def test_another_reference_begins_new_timelines_and_a_moved_tag_does_not(tree: Tree, upstream: Upstream) -> None:
    tend_branches()
    first = upstream.git("rev-parse", "HEAD")
    Tree.objects.update(reference=first[:12])
    second = pushed(tree, upstream, "two\n")
    upstream.git("tag", "v2")
    tend_branches()
    Tree.objects.update(reference="v2")
    third = pushed(tree, upstream, "three\n")
    tend_branches()
    upstream.git("tag", "-f", "v2")
    fourth = pushed(tree, upstream, "four\n")
    tend_branches()
    expected = [(first, 2, first), (second, 3, first), (third, 4, second), (fourth, 5, second)]
    assert measured() == expected


def test_unknown_reference_is_said_and_its_heads_wait(tree: Tree) -> None:
    Tree.objects.update(reference="v9.9")
    assert tend_branches() == 0
    tree.refresh_from_db()
    assert tree.pin_problem == "reference v9.9 is no tag of this tree that is watched, and no commit of the mirror"
    assert not MeasuredHead.objects.exists()
    Tree.objects.update(reference="")
    assert tend_branches() == 1
    tree.refresh_from_db()
    assert tree.pin_problem == ""


def test_a_forced_branch_goes_on_in_the_order_of_its_moves(tree: Tree, upstream: Upstream) -> None:
    tend_branches()
    upstream.commit({"README": "passed by\n"})
    forced = forced_away(tree, upstream)
    tend_branches()
    assert [place for _, place, _ in measured()] == [2, 3]
    assert measured()[1][0] == forced


def test_late_tag_on_the_line_takes_its_place_and_one_beside_it_is_not_measured(tree: Tree, upstream: Upstream) -> None:
    tend_branches()
    between = upstream.commit({"README": "to be released\n"})
    pushed(tree, upstream, "after\n")
    tend_branches()
    upstream.git("tag", "v1", between)
    upstream.git("checkout", "-q", "-b", "side")
    beside = upstream.commit({"README": "aside\n"})
    upstream.git("tag", "v1-aside", beside)
    upstream.git("checkout", "-q", "master")
    fetch_tree(tree=Tree.objects.get(pk=tree.pk))
    WantedRevision.objects.get_or_create(
        tree=tree,
        revision=MeasuredHead.objects.latest("place").revision.parent,
        defaults={"why": "tag", "detail": "v1"},
    )
    tend_branches()
    assert [place for _, place, _ in measured()] == [2, 3, 4]
    assert measured()[1][0] == between
    assert outcome(beside) == "not measured: it is on the first-parent line of no watched branch"


def test_what_lies_before_a_detour_of_the_branch_takes_no_place_of_another_head(tree: Tree, upstream: Upstream) -> None:
    tend_branches()
    for number in range(5):
        upstream.commit({"README": f"step {number}\n"})
    upstream.git("branch", "line")
    forced_away(tree, upstream)
    tend_branches()
    upstream.git("reset", "-q", "--hard", "line")
    fetch_tree(tree=Tree.objects.get(pk=tree.pk))
    tend_branches()
    assert [place for _, place, _ in measured()] == [2, 3, 4]
    # By the number of first parents to the newest head it would stand where the first head does.
    late = record_revisions(tree=tree, shas=[upstream.git("rev-parse", "line~2")])[0]
    WantedRevision.objects.create(tree=tree, revision=late, why="merge", branch="master")
    tend_branches()
    assert outcome(late.sha) == "not measured: master was forced away from its line meanwhile"


def test_a_commit_that_was_lost_is_given_up_and_those_behind_it_are_measured(tree: Tree, upstream: Upstream) -> None:
    lost = build_revision(tree)
    row = WantedRevision.objects.get()
    WantedRevision.objects.filter(pk=row.pk).update(revision=lost)
    pushed(tree, upstream, "behind it\n")
    tend_branches()
    assert outcome(lost.sha) == ""
    WantedRevision.objects.filter(pk=row.pk).update(created_at=EPOCH)
    tend_branches()
    assert outcome(lost.sha).startswith("not measured: ")
    assert tend_branches() == 1


@pytest.mark.usefixtures("tree")
def test_sites_may_measure_no_heads(upstream: Upstream, settings: Settings) -> None:
    settings.HEAD_BOOTS = 0
    tend_branches()
    assert outcome(upstream.git("rev-parse", "HEAD")) == "not measured: TIDEMARK_HEAD_BOOTS is 0 on this site"
    settings.HEAD_BOOTS = 3
    assert tend_branches() == 0
    assert not Trial.objects.exists()


@pytest.mark.usefixtures("tree")
def test_without_a_physical_machine_no_head_is_measured(upstream: Upstream) -> None:
    Machine.objects.update(virtual=True)
    tend_branches()
    assert outcome(upstream.git("rev-parse", "HEAD")) == "not measured: there is no physical machine"
