"""Series against a real tree: what `git am` makes of them, and what never reaches it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from server.core.errors import DomainError
from server.core.git import GitError
from server.core.locks import advisory_lock
from server.sources import application
from server.sources.application import apply_series
from server.sources.messages import store_message
from server.sources.mirror import base_ref, mirror, ref_of, series_ref
from server.sources.models import Branch, MailingList, Patch, Revision, Series, Tree
from server.sources.trees import fetch_tree
from tests.sources.posting import DIFF, Upstream, git, lines, mail, small_tree, two_patches

Sent = list[tuple[str, tuple[int | str, ...]]]
S = Series.State


def store(mailing_list: MailingList, mails: list[bytes]) -> Series:
    for raw in mails:
        store_message(mailing_list=mailing_list, raw=raw)
    return Series.objects.order_by("-pk")[0]


def applied(mailing_list: MailingList, mails: list[bytes]) -> Series:
    series = store(mailing_list, mails)
    assert series.state == S.READY, series.reason
    apply_series(series=series)
    series.refresh_from_db()
    return series


def commits_of(series: Series) -> list[str]:
    return [p.revision.sha for p in series.patches.all() if p.revision]


def full_am(upstream: Upstream, base: str, mails: list[bytes]) -> list[str]:
    """Trees that `git am -3` makes in a full checkout of `base`."""
    upstream.git("checkout", "-q", "--detach", base)
    for number, raw in enumerate(mails):
        file = upstream.path.parent / f"am-{number}"
        file.write_bytes(raw)
        git(upstream.path, "am", "-q", "-3", "--no-scissors", str(file))
    trees = upstream.git("log", "--reverse", "--format=%T", f"{base}..HEAD").split()
    upstream.git("checkout", "-q", "master")
    return trees


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
    assert series.reason == "applied to the head of stable/master"
    assert sent_tasks[-1] == ("builds.sweep", ())
    assert series.base is not None
    assert series.head is not None
    head = upstream.git("rev-parse", "master")
    first, second = (Revision.objects.get(sha=sha) for sha in commits_of(series))
    assert (series.base.sha, first.parent, second.parent, series.head) == (head, series.base, first, second)
    assert (first.subject, first.author) == ("mm: Clear the page", "Ada Author <ada@example.org>")
    assert [first.tree_sha, second.tree_sha] == full_am(upstream, head, mails[1:])
    refs = [base_ref(series.pk), series_ref(series.pk, 1), series_ref(series.pk, 2)]
    for ref, revision in zip(refs, [series.base, first, second], strict=True):
        assert ref_of(revision) == ref
        assert mirror().resolve(ref_of(revision)) == revision.sha


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
    upstream.commit({"mm/memory.c": lines(line9="another change near by")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.APPLIED, series.reason
    trees = [p.revision.tree_sha for p in series.patches.all() if p.revision]
    assert trees == full_am(upstream, "master", mails)


def test_file_renamed_upstream_is_followed_as_in_a_full_checkout(ready: MailingList, upstream: Upstream) -> None:
    mails = upstream.mails(two_patches(upstream))
    upstream.git("mv", "mm/memory.c", "mm/pages.c")
    upstream.commit_index("mm: Rename memory.c")
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.APPLIED, series.reason
    trees = [p.revision.tree_sha for p in series.patches.all() if p.revision]
    assert trees == full_am(upstream, "master", mails)


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
    trees = [p.revision.tree_sha for p in series.patches.all() if p.revision]
    assert trees == full_am(upstream, base, mails)


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


def test_base_commit_of_a_watched_branch_is_taken(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    old = commits.split("..")[0]
    upstream.commit({"mm/memory.c": lines(line7="something else")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, upstream.mails(commits, f"--base={old}"))
    assert (series.state, series.reason) == (S.APPLIED, "applied to the base-commit, in stable/master")
    assert series.base is not None
    assert series.base.sha == old


def test_base_commit_that_no_branch_holds_is_not_trusted(ready: MailingList, upstream: Upstream) -> None:
    first = applied(ready, upstream.mails(two_patches(upstream)))
    inside_mirror = commits_of(first)[0]
    body = DIFF + f"\nbase-commit: {inside_mirror}\n"
    series = applied(ready, [mail("[PATCH] README: Grow", body, message_id="readme@x")])
    assert (series.state, series.reason) == (S.APPLIED, "applied to the head of stable/master")


def test_newest_head_that_applies_wins(tree: Tree, linux_mm: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    mails = upstream.mails(commits)
    upstream.git("branch", "stable-branch")
    Branch.objects.create(tree=tree, name="stable-branch")
    upstream.commit({"mm/memory.c": "all is new\n"})
    fetch_tree(tree=tree)
    series = applied(linux_mm, mails)
    assert (series.state, series.reason) == (S.APPLIED, "applied to the head of stable/stable-branch")


@pytest.mark.parametrize(
    ("line", "which", "words"),
    [
        ("line 7\n", "patch 1/2: ", "CONFLICT (content): Merge conflict in mm/memory.c"),
        ("line 30\n", "patch 2/2: ", "error: sha1 information is lacking or useless (mm/memory.c)"),
    ],
)
def test_conflict_is_refused_with_the_words_of_git(
    ready: MailingList, upstream: Upstream, line: str, which: str, words: str
) -> None:
    mails = upstream.mails(two_patches(upstream))
    upstream.commit({"mm/memory.c": lines().replace(line, "taken\n")})
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.REFUSED
    assert series.reason.startswith("does not apply to the head of stable/master (")
    assert which in series.reason
    assert words in series.reason
    assert commits_of(series) == []
    assert mirror().output("for-each-ref", "refs/tidemark/series") == b""


def test_patch_that_is_in_already_is_refused(ready: MailingList, upstream: Upstream) -> None:
    commits = two_patches(upstream)
    mails = upstream.mails(commits)
    upstream.git("merge", "-q", "--ff-only", commits.split("..")[1] + "~1")
    fetch_tree(tree=Tree.objects.get())
    series = applied(ready, mails)
    assert series.state == S.REFUSED
    assert "git am made 1 commits of 2 patches" in series.reason
    assert "already applied" in series.reason


def test_tree_that_was_never_fetched_leaves_the_series_ready(linux_mm: MailingList, upstream: Upstream) -> None:
    series = store(linux_mm, upstream.mails(two_patches(upstream)))
    with pytest.raises(DomainError) as caught:
        apply_series(series=series)
    assert (caught.value.code, caught.value.permanent) == ("tree-not-fetched", False)
    series.refresh_from_db()
    assert (series.state, series.failures) == (S.READY, 0)
    assert series.reason == "tried again soon: tree stable has not been fetched yet"
    fetch_tree(tree=linux_mm.tree)
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
    series = applied(ready, upstream.mails(two_patches(upstream)))
    assert series.state == S.REFUSED
    assert "not tried, the others took 0 s" in series.reason


def test_slow_git_am_is_ended_when_the_time_of_the_series_is_over(
    ready: MailingList, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 150.0 - 0.001])
    monkeypatch.setattr(application, "time", SimpleNamespace(monotonic=lambda: next(now, 151.0)))
    series = applied(ready, upstream.mails(two_patches(upstream)))
    assert series.state == S.REFUSED
    assert "git am took longer than" in series.reason


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
    with pytest.raises(GitError):
        apply_series(series=series)
    series.refresh_from_db()
    assert (series.state, series.reason) == (S.REFUSED, "git failed 3 times: git read-tree: bad index")


def diff(path: str, *, old: str = "/dev/null", header: str = "new file mode 100644\n") -> str:
    other = old if old == "/dev/null" else f"a/{old}"
    return (
        f"Text.\n---\ndiff --git a/{path} b/{path}\n{header}index 0000000..1111111\n--- {other}\n+++ b/{path}\n"
        "@@ -0,0 +1 @@\n+text\n--\n2.39\n"
    )


_SYMLINK = diff("link", header="new file mode 120000\n")
_SUBMODULE = diff("sub", header="new file mode 160000\n")
_BINARY = "Text.\n---\ndiff --git a/logo b/logo\nnew file mode 100644\nindex 0000000..1111111\nGIT binary patch\n"
_BINARY += "literal 4\nLcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (diff("../outside"), "patch 1/1 touches ../outside, which is outside the tree"),
        (diff("mm/../../outside"), "outside the tree"),
        (diff("/etc/passwd"), "outside the tree"),
        (diff(".git/hooks/post-applypatch"), "patch 1/1 touches .git/hooks/post-applypatch, which is outside the tree"),
        (diff("mm/.GIT/config"), "outside the tree"),
        (_SYMLINK, "patch 1/1 touches a symbolic link: a/link b/link"),
        (_SUBMODULE, "patch 1/1 touches a submodule: a/sub b/sub"),
        (_BINARY, "patch 1/1 changes the binary file logo"),
        (DIFF.replace("@@ -1 +1 @@", "@@ -1,9 +1,9 @@"), "patch 1/1 holds no usable diff: error: corrupt patch"),
        (DIFF + "+" * (2 * 1024 * 1024), "patch 1/1 is larger than 2 MB"),
    ],
)
def test_patch_is_screened_before_it_is_applied(ready: MailingList, body: str, reason: str) -> None:
    series = applied(ready, [mail("[PATCH] x", body)])
    assert series.state == S.REFUSED
    assert reason in series.reason
    assert mirror().output("for-each-ref", "refs/tidemark/series") == b""


def test_rename_out_of_the_git_folder_is_seen(ready: MailingList) -> None:
    body = "Text.\n---\ndiff --git a/.git/config b/stolen\nsimilarity index 100%\nrename from .git/config\n"
    series = applied(ready, [mail("[PATCH] x", body + "rename to stolen\n--\n2.39\n")])
    assert "patch 1/1 touches .git/config, which is outside the tree" in series.reason


def test_symlink_in_the_tree_cannot_be_changed_as_if_it_were_a_file(tmp_path: Path, linux_mm: MailingList) -> None:
    upstream = small_tree(tmp_path / "with-link")
    (upstream.path / "link").symlink_to("README")
    upstream.commit({}, "Link")
    Tree.objects.update(url=str(upstream.path))
    fetch_tree(tree=Tree.objects.get())
    base = upstream.git("rev-parse", "HEAD")
    (upstream.path / "link").unlink()
    (upstream.path / "link").symlink_to("/etc/passwd")
    upstream.commit({}, "Point elsewhere")
    raw = upstream.mails(f"{base}..HEAD")[0]
    # Both with the mode that git writes and without the line that tells it.
    without = b"\n".join(line for line in raw.split(b"\n") if not line.startswith(b"index "))
    for number, content in enumerate([raw, without.replace(b"Message-Id: <", b"Message-Id: <w")]):
        series = applied(linux_mm, [content])
        assert series.state == S.REFUSED, number
        assert "symbolic link" in series.reason, series.reason


def test_hooks_and_attributes_of_a_patch_run_nothing(ready: MailingList, upstream: Upstream, tmp_path: Path) -> None:
    base = upstream.git("rev-parse", "HEAD")
    marker = tmp_path / "ran"
    upstream.git("checkout", "-q", "-b", "attributes")
    upstream.commit(
        {".gitattributes": "* filter=evil merge=evil diff=evil\n", ".githooks/post-commit": f"touch {marker}\n"}
    )
    upstream.commit({"README": "Through a filter.\n"})
    mails = upstream.mails(f"{base}..HEAD")
    upstream.git("checkout", "-q", "master")
    series = applied(ready, mails)
    assert series.state == S.APPLIED, series.reason
    assert not marker.exists()


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
