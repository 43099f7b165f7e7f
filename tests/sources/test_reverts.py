"""Commits that take another one back."""

import pytest

from server.sources.applying.application import apply_series
from server.sources.applying.git_am import revert_commit
from server.sources.mirror import mirror, record_revisions, ref_of
from server.sources.models import MailingList, Revision, Series, Tree
from server.sources.trees.fetch import fetch_tree
from tests.sources.applying import applied
from tests.sources.posting import Upstream, lines, two_patches

pytestmark = pytest.mark.django_db


def text(revision: Revision, path: str) -> str:
    return mirror().output("show", f"{revision.sha}:{path}").decode()


def history(tree: Tree, upstream: Upstream, *files: dict[str, str]) -> list[Revision]:
    shas = [upstream.commit(changed, f"mm: Change {number}") for number, changed in enumerate(files, 1)]
    fetch_tree(tree=tree)
    return record_revisions(tree=tree, shas=shas)


def test_a_commit_is_taken_back_and_later_ones_stay(tree: Tree, upstream: Upstream) -> None:
    first, second = lines(line7="clear the page"), lines(line7="clear the page", line30="twice")
    culprit, head = history(tree, upstream, {"mm/memory.c": first}, {"mm/memory.c": second, "new": "x\n"})
    made = revert_commit(head=head, culprit=culprit)
    assert made is not None
    assert text(made, "mm/memory.c") == lines(line30="twice")
    assert text(made, "new") == "x\n"
    assert made.parent == head
    assert made.subject == 'Revert "mm: Change 1"'
    # A ref keeps it, by which builders fetch code that they trust as that of its tree.
    ref = ref_of(made)
    assert ref == f"refs/tidemark/reverts/{made.sha}"
    assert mirror().resolve(ref) == made.sha


def test_the_same_call_makes_the_same_commit(tree: Tree, upstream: Upstream) -> None:
    culprit, head = history(tree, upstream, {"a": "1\n"}, {"b": "2\n"})
    assert revert_commit(head=head, culprit=culprit) == revert_commit(head=head, culprit=culprit)
    assert Revision.objects.filter(subject__startswith="Revert").count() == 1


def test_without_the_last_commit_the_tree_is_that_of_the_one_before(tree: Tree, upstream: Upstream) -> None:
    before, head = history(tree, upstream, {"a": "1\n"}, {"a": "2\n"})
    made = revert_commit(head=head, culprit=head)
    assert made is not None
    assert made.tree_sha == before.tree_sha


def test_a_commit_that_later_ones_build_on_cannot_be_taken_back(tree: Tree, upstream: Upstream) -> None:
    culprit, head = history(tree, upstream, {"a": "1\n"}, {"a": "2\n"})
    assert revert_commit(head=head, culprit=culprit) is None
    assert mirror().output("for-each-ref", "refs/tidemark/reverts") == b""


def test_what_holds_patches_of_a_series_stays_foreign_code(
    fetched: Tree, upstream: Upstream, linux_mm: MailingList
) -> None:
    series = applied(linux_mm, upstream.mails(two_patches(upstream)))
    assert series.state == Series.State.APPLIED, series.reason
    apply_series(series=series)
    first = series.patches.get(index=1).revision
    assert first is not None
    assert series.head is not None
    made = revert_commit(head=series.head, culprit=first)
    assert made is not None
    assert "twice" in text(made, "mm/memory.c")
    assert "clear the page" not in text(made, "mm/memory.c")
    assert ref_of(made) == f"refs/tidemark/series/reverts/{made.sha}"
