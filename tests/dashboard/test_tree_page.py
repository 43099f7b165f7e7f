"""The page of one tree."""

import pytest

from server.core import clock
from server.detection.models import Finding
from server.sources.models import Branch, HeadMove, Tag, Tree, WantedRevision
from tests.builders import build_list, build_revision, build_tree
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline

pytestmark = pytest.mark.django_db


@pytest.fixture
def tree() -> Tree:
    return build_tree("mm", branch_patterns=["mm-*"], heads_per_day=3, merges_by=["torvalds@example.org"])


def test_unknown_tree_is_not_found(reader: Reader) -> None:
    assert "404" in reader.read("/trees/nowhere/", status=404)


def test_tree_tells_its_policy_and_its_lists(reader: Reader, tree: Tree) -> None:
    build_list(tree=tree)
    text = reader.read("/trees/mm/")
    for fact in ("mm-*", "at most 3 in 24 hours", "by torvalds@example.org", "default set", "linux-mm"):
        assert fact in text


def test_tree_shows_branches_moves_choices_and_tags(reader: Reader, tree: Tree) -> None:
    old, new = build_revision(tree, subject="the old head"), build_revision(tree, subject="the new head")
    branch = Branch.objects.create(tree=tree, name="mm-unstable", head=new, head_at=clock.now())
    HeadMove.objects.create(branch=branch, kind="forced", before=old, after=new, decision="head measured")
    WantedRevision.objects.create(tree=tree, revision=new, why="merge", detail="torvalds@example.org")
    Tag.objects.create(tree=tree, name="v6.19-rc1", revision=old)
    Branch.objects.create(tree=tree, name="mm-gone", head=old, deleted_at=clock.now())
    pages = [reader.read(f"/trees/mm/{table}") for table in ("", "?moves=1", "?wanted=1", "?tags=1")]
    text = " ".join(" ".join(pages).split())
    for fact in (
        "the new head", "history rewritten", "the old head", "head measured", "merge by a named person:", "v6.19-rc1",
        'mm-gone</a> <span class="state off">deleted</span>',
    ):  # fmt: skip
        assert fact in text


@pytest.mark.parametrize("page", ["2", "99", "-1", "x", ""])
def test_each_table_has_pages_of_its_own(reader: Reader, tree: Tree, page: str) -> None:
    revision = build_revision(tree)
    branch = Branch.objects.create(tree=tree, name="mm-new", head=revision, head_at=clock.now())
    HeadMove.objects.bulk_create(
        HeadMove(branch=branch, kind="advanced", after=revision, decision=f"decision {number}") for number in range(30)
    )
    text = reader.read(f"/trees/mm/?moves={page}")
    assert ("decision 0<" in text) is (page in {"2", "99", "-1"})
    assert "mm-new" in text


def test_tree_that_was_never_judged_says_which_commands_fill_it(reader: Reader, tree: Tree) -> None:
    text = reader.read(f"/trees/{tree.name}/")
    assert "No head of this tree has been judged yet." in text
    assert "manage.py fetch_tree mm" in text


def test_tree_shows_the_heat_of_its_branch_and_its_open_findings(reader: Reader) -> None:
    timeline = moved_timeline()
    name = timeline.branch.tree.name
    text = reader.read(f"/trees/{name}/")
    assert f'href="/timelines/{timeline.pk}/"' in text
    assert f'href="/findings/{Finding.objects.get().pk}/"' in text
    assert "1 slower" in text
    assert f'href="/trees/{name}/feed/"' in text


def test_branch_that_is_not_there_is_said(reader: Reader) -> None:
    timeline = moved_timeline()
    text = reader.read(f"/trees/{timeline.branch.tree.name}/?branch=nothing")
    assert "nothing has judged heads here; shown is" in text
    assert f'href="/timelines/{timeline.pk}/"' in text
