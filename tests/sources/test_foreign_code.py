"""Whose code a commit is: decided by what watched trees published, whatever rows and refs name it today."""

import pytest
from tidemark_agent.build.objects import is_published

from server.lab.hosts.probes import TRUSTED_BOOT, trees_of_patches
from server.lab.models import Boot
from server.sources.applying.application import apply_series
from server.sources.mirror import mirror, record_revisions, ref_of
from server.sources.models import MailingList, Revision, Series, Tree
from server.sources.trees.fetch import fetch_tree
from tests.builders import build_trial, build_trial_session
from tests.sources.applying import applied, base_of, commits_of, with_trailer
from tests.sources.posting import Upstream, lines


def posted(upstream: Upstream, subject: str, on: str, line: str, stamp: int) -> list[bytes]:
    upstream.git("checkout", "-q", "-b", subject, on)
    upstream.commit({"mm/memory.c": lines(line7=line)}, f"mm: {subject}")
    upstream.git("checkout", "-q", "master")
    return upstream.mails(f"{subject}~1..{subject}", stamp=stamp)


def run_again(series: Series) -> None:
    Series.objects.filter(pk=series.pk).update(state=Series.State.READY, base=None, head=None, tried_at=None)
    apply_series(series=series)


def trusted_arms(series: Series) -> set[str]:
    session = build_trial_session(build_trial(purpose="series", series=series))
    return set(Boot.objects.filter(TRUSTED_BOOT, session=session).values_list("arm", flat=True))


@pytest.fixture
def second(fetched: Tree, linux_mm: MailingList, upstream: Upstream) -> Series:
    """On a patch of another series that was applied anew since, on another head: no row says whose that patch is."""
    below = posted(upstream, "First", "master", "first", 1_793_500_001)
    first = applied(linux_mm, below)
    (made,) = commits_of(first)
    above = posted(upstream, "Second", "First", "first and second", 1_793_500_002)
    series = applied(linux_mm, with_trailer(above, f"base-commit: {made}"))
    assert base_of(series) == made
    upstream.commit({"README": "gone on\n"})
    fetch_tree(tree=fetched)
    run_again(first)
    assert commits_of(first) != [made]
    return series


def test_base_that_is_another_series_patch_is_built_and_booted_as_its_author_s(second: Series) -> None:
    base = second.base
    assert base is not None
    ref = ref_of(base)
    assert mirror().resolve(ref) == base.sha
    assert not is_published(ref)
    assert trees_of_patches([base.tree_sha]) == {base.tree_sha}
    assert trusted_arms(second) == set()


def test_base_with_prerequisites_below_it_is_foreign_as_well(
    fetched: Tree, linux_mm: MailingList, upstream: Upstream
) -> None:
    below = posted(upstream, "First", "master", "first", 1_793_500_001)
    applied(linux_mm, below)
    upstream.commit({"README": "gone on\n"})
    fetch_tree(tree=fetched)
    named = below[0].partition(b"Message-Id: <")[2].partition(b">")[0].decode()
    above = posted(upstream, "Second", "First", "first and second", 1_793_500_002)
    series = applied(linux_mm, with_trailer(above, f"prerequisite-message-id: <{named}>"))
    base = series.base
    assert base is not None, series.reason
    assert trees_of_patches([base.tree_sha]) == {base.tree_sha}
    assert trusted_arms(series) == set()


def test_base_of_a_watched_branch_is_published_wherever_the_branch_went(
    fetched: Tree, linux_mm: MailingList, upstream: Upstream
) -> None:
    series = applied(linux_mm, posted(upstream, "First", "master", "first", 1_793_500_001))
    base = series.base
    assert base is not None
    for step in ("stays", "goes on", "is forced away"):
        if step == "goes on":
            upstream.commit({"README": "gone on\n"})
        if step == "is forced away":
            upstream.git("reset", "-q", "--hard", "HEAD~2")
        fetch_tree(tree=fetched)
        assert is_published(ref_of(base)), step
        assert mirror().is_ancestor(base.sha, ref_of(base)), step
    assert trees_of_patches([base.tree_sha]) == set()
    assert trusted_arms(series) == {"base"}


def test_what_a_row_is_written_for_later_is_asked_of_git(
    fetched: Tree, linux_mm: MailingList, upstream: Upstream
) -> None:
    (made,) = commits_of(applied(linux_mm, posted(upstream, "First", "master", "first", 1_793_500_001)))
    root = upstream.git("rev-list", "--max-parents=0", "master")
    author = ["-c", "user.name=x", "-c", "user.email=x@x"]
    tree = mirror().output("rev-parse", f"{made}^{{tree}}").decode().strip()
    above = mirror().output(*author, "commit-tree", tree, "-p", made, "-m", "x").decode().strip()
    rows = record_revisions(tree=fetched, shas=[root, above])
    assert [row.foreign for row in rows] == [False, True]


def test_patch_that_a_watched_tree_took_as_it_is_is_foreign_no_longer(
    fetched: Tree, linux_mm: MailingList, upstream: Upstream
) -> None:
    (made,) = commits_of(applied(linux_mm, posted(upstream, "First", "master", "first", 1_793_500_001)))
    upstream.git("fetch", "-q", str(mirror().git_dir), "refs/tidemark/series/*:refs/heads/x/*")
    upstream.git("reset", "-q", "--hard", made)
    fetch_tree(tree=fetched)
    revision = Revision.objects.get(sha=made)
    assert not revision.foreign
    assert is_published(ref_of(revision))
