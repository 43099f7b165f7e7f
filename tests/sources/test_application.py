"""Series against a real tree: what `git am` makes of them, and what never reaches it."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.programs import sandbox
from server.core.programs.git import GitError, Repository
from server.sources.applying import application
from server.sources.applying.application import apply_series
from server.sources.applying.git_am import linear_commits
from server.sources.mirror import base_ref, mirror, ref_of, series_ref, tree_ref
from server.sources.models import MailingList, Patch, Revision, Series, Tree
from server.sources.trees.fetch import fetch_tree
from tests.sources.applying import applied, base_of, commits_of, full_am, store, trees_of, with_trailer
from tests.sources.posting import Upstream, lines, two_patches

Sent = list[tuple[str, tuple[int | str, ...]]]
S = Series.State


@pytest.fixture
def ready(fetched: Tree, linux_mm: MailingList) -> MailingList:
    return linux_mm


@pytest.mark.django_db(transaction=True)
def test_series_becomes_commits_on_the_head_and_wakes_builds(
    tree: Tree, linux_mm: MailingList, upstream: Upstream, sent_tasks: Sent
) -> None:
    fetch_tree(tree=tree)
    mails = upstream.mails(two_patches(upstream), "--cover-letter")
    series = applied(linux_mm, mails)
    assert series.state == S.APPLIED, series.reason
    assert series.reason == f"applied to {base_of(series)[:12]}: the pre-image is in stable/master"
    assert sent_tasks[-1] == ("builds.sweep", ())
    assert series.base is not None
    assert series.head is not None
    head = upstream.git("rev-parse", "master")
    first, second = (Revision.objects.get(sha=sha) for sha in commits_of(series))
    assert (series.base.sha, first.parent, second.parent, series.head) == (head, series.base, first, second)
    assert (first.subject, first.author) == ("mm: Clear the page", "Ada Author <ada@example.org>")
    assert [first.tree_sha, second.tree_sha] == full_am(upstream, head, mails[1:])
    refs = [base_ref(series.pk), series_ref(series.pk, 1), series_ref(series.pk, 2)]
    assert [mirror().resolve(ref) for ref in refs] == [head, first.sha, second.sha]
    trusted = tree_ref(series.base.tree, "master")
    assert [ref_of(revision) for revision in (series.base, first, second)] == [trusted, *refs[1:]]


def test_applying_again_makes_the_same_commits(ready: MailingList, upstream: Upstream, state_dir: Path) -> None:
    series = applied(ready, upstream.mails(two_patches(upstream)))
    before = commits_of(series)
    Patch.objects.update(revision=None)
    Series.objects.update(state=S.READY, base=None, head=None)
    # What a process that was killed in the middle leaves behind.
    left = state_dir / "scratch" / f"series-{series.pk}" / "tree"
    left.mkdir(parents=True)
    (left / "rubbish").write_text("x")
    apply_series(series=series)
    assert commits_of(series) == before
    assert not left.exists()


def test_committer_is_fixed_and_dated_by_the_mail(ready: MailingList, upstream: Upstream) -> None:
    series = applied(ready, upstream.mails(two_patches(upstream)))
    who = mirror().output("log", "-1", "--format=%cn <%ce> %ct %at", commits_of(series)[0]).decode().strip()
    sent = series.patches.all()[0].message.sent_at
    assert sent is not None
    assert who == f"Tidemark <tidemark@localhost> {int(sent.timestamp())} {int(sent.timestamp())}"


def test_impossible_date_still_makes_the_same_commits(ready: MailingList, upstream: Upstream) -> None:
    raw = upstream.mails(two_patches(upstream))[0].replace(b"[PATCH 1/2]", b"[PATCH]")
    head, _, tail = raw.partition(b"\nDate: ")
    series = applied(ready, [head + b"\nDate: Fri, 32 Foo 2077 99:99\n" + tail.partition(b"\n")[2]])
    assert series.state == S.APPLIED, series.reason
    before = commits_of(series)
    Series.objects.update(state=S.READY, base=None, head=None)
    apply_series(series=series)
    assert commits_of(series) == before


def test_three_way_merge_gives_the_tree_of_a_full_checkout(ready: MailingList, upstream: Upstream) -> None:
    """The context has changed since, so that a plain apply fails and only the blobs of the index lines help."""
    mails = upstream.mails(two_patches(upstream))
    head = upstream.commit({"mm/memory.c": lines(line9="another change near by")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, with_trailer(mails, f"base-commit: {head}"))
    assert series.state == S.APPLIED, series.reason
    assert trees_of(series) == full_am(upstream, "master", mails)


def test_file_renamed_upstream_is_not_followed(ready: MailingList, upstream: Upstream) -> None:
    """Its new name is not what people and rules were asked about."""
    mails = upstream.mails(two_patches(upstream))
    upstream.git("mv", "mm/memory.c", "mm/pages.c")
    head = upstream.commit_index("mm: Rename memory.c")
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, with_trailer(mails, f"base-commit: {head}"))
    assert series.state == S.APPLIED, series.reason
    assert "it does not apply to" in series.base_how
    assert head[:12] in series.base_how
    assert trees_of(series) == full_am(upstream, f"{head}^", mails)


def test_patch_reaches_no_file_that_it_does_not_name(ready: MailingList, upstream: Upstream) -> None:
    """The blob of an index line is any file's: to a three-way merge that is what the patch's file was renamed to."""
    mails = [mail.replace(b"mm/memory.c", b"Documentation/m.rst") for mail in upstream.mails(two_patches(upstream))]
    series = applied(ready, mails)
    assert series.state == S.REFUSED
    assert "touches mm/memory.c, which its patch does not name" in series.reason


def test_new_deleted_renamed_and_odd_named_files_give_the_same_tree(ready: MailingList, upstream: Upstream) -> None:
    base = upstream.git("rev-parse", "HEAD")
    upstream.git("checkout", "-q", "-b", "work")
    upstream.commit({"mm/new [1]* file.c": "new\n", "!odd": "x\n", "deep/er/file": "y\n", "empty": ""}, "Add")
    upstream.git("mv", "mm/rmap.c", "mm/moved.c")
    upstream.git("rm", "-q", "kernel/fork.c")
    (upstream.path / "README").chmod(0o755)
    upstream.commit({"mm/new [1]* file.c": "newer\n", "ümlaut": "z\n"}, "Move")
    mails = upstream.mails(f"{base}..work")
    upstream.git("checkout", "-q", "master")
    series = applied(ready, mails)
    assert series.state == S.APPLIED, series.reason
    assert trees_of(series) == full_am(upstream, base, mails)


def test_encoded_and_crlf_mails_apply(ready: MailingList, upstream: Upstream) -> None:
    import quopri

    first, second = upstream.mails(two_patches(upstream))
    head, _, body = first.partition(b"\n\n")
    encoded = head + b"\nContent-Transfer-Encoding: quoted-printable\n\n" + quopri.encodestring(body)
    series = applied(ready, [encoded, second.replace(b"\n", b"\r\n")])
    assert series.state == S.APPLIED, series.reason


def test_body_that_looks_like_a_second_mail_stays_one_commit(ready: MailingList, upstream: Upstream) -> None:
    first, second = upstream.mails(two_patches(upstream))
    trap = b"\n\nFrom 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: eve@x\nSubject: x\n\n"
    head, _, body = first.partition(b"\n\n")
    series = applied(ready, [head + trap + body, second])
    assert series.state == S.APPLIED, series.reason
    assert len(commits_of(series)) == 2
    assert "eve" not in series.patches.all()[0].revision.author  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "which", "words"),
    [
        ("line7", "patch 1/2: ", "CONFLICT (content): Merge conflict in mm/memory.c"),
        ("line30", "patch 2/2: ", "error: sha1 information is lacking or useless (mm/memory.c)"),
    ],
)
def test_conflict_is_refused_with_the_words_of_git(
    ready: MailingList, upstream: Upstream, line: str, which: str, words: str
) -> None:
    """The author had another patch below, of which the mirror knows the file only: nothing tells where it belongs."""
    upstream.git("checkout", "-q", "-b", "private")
    upstream.commit({"mm/memory.c": lines(line20="private")}, "Private")
    known = upstream.git("rev-parse", "HEAD:mm/memory.c")
    upstream.commit({"mm/memory.c": lines(line20="private", line7="clear the page")}, "mm: Clear the page")
    twice = lines(line20="private", line7="clear the page", line30="twice")
    upstream.commit({"mm/memory.c": twice}, "mm: Clear it twice")
    mails = upstream.mails("HEAD~2..HEAD")
    mirror().output("hash-object", "-w", "--stdin", stdin=upstream.git("cat-file", "blob", known).encode() + b"\n")
    upstream.git("checkout", "-q", "master")
    upstream.commit({"mm/memory.c": lines(40, **{line: "taken"})})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.REFUSED
    assert series.reason.startswith("does not apply to ")
    assert "guessed: it is the tree of the list; newest head that it applies to, stable/master" in series.reason
    assert which in series.reason
    assert words in series.reason
    assert commits_of(series) == []
    assert mirror().output("for-each-ref", "refs/tidemark/series") == b""


def test_patch_that_is_in_already_is_refused(ready: MailingList, upstream: Upstream) -> None:
    upstream.git("checkout", "-q", "-b", "work")
    upstream.commit({"mm/new.c": "new\n"}, "mm: Add a file")
    mails = upstream.mails("HEAD~1..HEAD")
    upstream.git("checkout", "-q", "master")
    upstream.git("merge", "-q", "--ff-only", "work")
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.REFUSED
    assert "git am made 0 commits of 1 patches: the others are already applied there" in series.reason


def test_tree_that_was_never_fetched_leaves_the_series_ready(linux_mm: MailingList, upstream: Upstream) -> None:
    series = store(linux_mm, upstream.mails(two_patches(upstream)))
    with pytest.raises(DomainError) as caught:
        apply_series(series=series)
    assert (caught.value.code, caught.value.permanent) == ("tree-not-fetched", False)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 0)
    assert series.reason == "tried again soon: tree stable has not been fetched yet"
    fetch_tree(tree=Tree.objects.get())
    apply_series(series=series)
    assert series.state == S.APPLIED


@pytest.mark.parametrize("state", [S.INCOMPLETE, S.HELD, S.SUPERSEDED])
def test_only_ready_series_are_applied(ready: MailingList, upstream: Upstream, state: str) -> None:
    series = store(ready, upstream.mails(two_patches(upstream)))
    Series.objects.update(state=state)
    apply_series(series=series)
    assert series.state == state
    assert commits_of(series) == []


def test_git_that_takes_too_long_refuses_the_series(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_SECONDS", 0.0)
    series = store(ready, upstream.mails(two_patches(upstream)))
    for failures in (1, 2):
        with pytest.raises(GitError):
            apply_series(series=series)
        series.refresh_from_db()
        assert (series.state, series.failures) == (S.READY, failures), "the host may have been busy"
        Series.objects.update(tried_at=clock.now() - timedelta(hours=1))
    with pytest.raises(GitError):
        apply_series(series=series)
    assert series.state == S.REFUSED
    assert series.reason.startswith("git failed 3 times: does not apply to ")
    assert "not tried, the others took 0 s" in series.reason


def test_slow_git_am_is_ended_when_the_time_of_the_series_is_over(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.0, 0.0, 120.0 - 0.001])
    monkeypatch.setattr(application, "time", SimpleNamespace(monotonic=lambda: next(now, 121.0)))
    series = store(ready, upstream.mails(two_patches(upstream)))
    with pytest.raises(GitError):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 1), "the host may have been busy"
    assert series.reason.startswith("tried again soon: git am took longer than")


def test_git_that_fails_again_and_again_refuses_the_series(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_options: object) -> None:
        raise GitError("git-failed", "git read-tree: bad index")

    monkeypatch.setattr(application, "apply_mails", broken)
    series = store(ready, upstream.mails(two_patches(upstream)))
    for _ in range(2):
        with pytest.raises(GitError):
            apply_series(series=series)
        series.refresh_from_db()
        assert (series.state, series.reason) == (S.READY, "tried again soon: git read-tree: bad index")
        # Before its pause is over it is left alone.
        apply_series(series=series)
        Series.objects.update(tried_at=clock.now() - timedelta(minutes=10))
    with pytest.raises(GitError):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.reason) == (S.REFUSED, "git failed 3 times: git read-tree: bad index")


def test_without_a_sandbox_the_series_waits_and_says_what_is_missing(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    def missing() -> None:
        raise DomainError("sandbox-missing", "patches wait, for bwrap is not installed", permanent=False)

    monkeypatch.setattr(sandbox, "require_sandbox", missing)
    series = store(ready, upstream.mails(two_patches(upstream)))
    with pytest.raises(DomainError):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 0)
    assert series.reason == "tried again soon: patches wait, for bwrap is not installed"
    settings.APPLY_SANDBOX = "none"
    Series.objects.update(tried_at=clock.now() - timedelta(minutes=1))
    apply_series(series=series)
    assert series.state == S.APPLIED, "an operator may do without"


def test_commits_that_do_not_follow_each_other_are_not_believed(upstream: Upstream) -> None:
    base = upstream.git("rev-parse", "HEAD")
    first = upstream.commit({"README": "One.\n"})
    upstream.git("checkout", "-q", "-b", "side", base)
    side = upstream.commit({"mm/rmap.c": "Other.\n"})
    repository = Repository(upstream.path / ".git")
    assert linear_commits(repository, base, first) == [first]
    with pytest.raises(GitError, match="which is not above"):
        linear_commits(repository, first, base)
    merge = ("-c", "user.name=x", "-c", "user.email=x@x", "merge", "-q", "--no-edit", first)
    upstream.git(*merge)
    for start in (base, side):
        with pytest.raises(GitError, match="with parents"):
            linear_commits(repository, start, upstream.git("rev-parse", "HEAD"))


@pytest.mark.django_db(transaction=True)
def test_second_process_leaves_a_series_alone(tree: Tree, linux_mm: MailingList, upstream: Upstream) -> None:
    import threading

    from django.db import connection

    fetch_tree(tree=tree)
    series = store(linux_mm, upstream.mails(two_patches(upstream)))

    def other() -> None:
        apply_series(series=Series.objects.get(pk=series.pk))
        connection.close()

    with advisory_lock(f"sources.series.{series.pk}"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    series.refresh_from_db()
    assert series.state == S.READY
