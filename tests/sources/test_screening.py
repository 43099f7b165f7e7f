"""What never reaches git am: each refused with the patch and the path in the reason."""

import base64
import time
from pathlib import Path

import pytest

from server.sources import screened_mails
from server.sources.models import MailingList, Message, Patch, Series, Tree
from server.sources.screened_mails import PatchRefusedError, ScreenedMail, objection, read_strange, screen_patches
from server.sources.trees.fetch import fetch_tree
from tests.builders import EPOCH
from tests.sources.applying import applied, full_am, trees_of
from tests.sources.posting import DIFF, Upstream, mail, small_tree, two_patches

S = Series.State


@pytest.fixture
def ready(fetched: Tree, linux_mm: MailingList) -> MailingList:
    return linux_mm


def screened(folder: Path, *raws: bytes) -> list[ScreenedMail]:
    """These mails as the patches of one series; no row is needed to look at them."""
    series = Series(total=len(raws), root_message_id="root@x")
    mails = [
        Message(raw=raw, message_id=f"{n}@x", sender_address="ada@example.org", sent_at=EPOCH)
        for n, raw in enumerate(raws)
    ]
    patches = [Patch(series=series, index=n, message=m) for n, m in enumerate(mails, start=1)]
    return screen_patches(patches, folder=folder, seconds=60)


def refusal(folder: Path, *raws: bytes) -> str:
    with pytest.raises(PatchRefusedError) as caught:
        screened(folder, *raws)
    return caught.value.message


def diff(path: str, *, old: str = "/dev/null", header: str = "new file mode 100644\n", hunk: str = "-0,0 +1") -> str:
    other = old if old == "/dev/null" else f"a/{old}"
    return (
        f"Text.\n---\ndiff --git a/{path} b/{path}\n{header}index 0000000..1111111\n--- {other}\n+++ b/{path}\n"
        f"@@ {hunk} @@\n+text\n--\n2.39\n"
    )


_SYMLINK = diff("link", header="new file mode 120000\n")
_SUBMODULE = diff("sub", header="new file mode 160000\n")
_BINARY = "Text.\n---\ndiff --git a/logo b/logo\nnew file mode 100644\nindex 0000000..1111111\nGIT binary patch\n"
_BINARY += "literal 4\nLcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n"
_RENAME = "Text.\n---\ndiff --git a/README b/README\nsimilarity index 100%\nrename from README\n"
_RENAME += "rename to ../stolen\n--\n2.39\n"
_STOLEN = "Text.\n---\ndiff --git a/.git/config b/stolen\nsimilarity index 100%\nrename from .git/config\n"
_STOLEN += "rename to stolen\n--\n2.39\n"
_HUGE = "patch 1/1 claims a hunk of more lines than any file has: a/README b/README"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (diff("../outside"), "patch 1/1 touches ../outside, which is outside the tree"),
        (diff("mm/../../outside"), "outside the tree"),
        (diff("/etc/passwd"), "outside the tree"),
        (diff(".git/hooks/post-applypatch"), "patch 1/1 touches .git/hooks/post-applypatch, which is outside the tree"),
        (diff("mm/.GIT/config"), "outside the tree"),
        (diff(".g\u200cit/config"), "outside the tree"),
        (diff(".gitmodules"), "patch 1/1 touches .gitmodules, which names submodules"),
        (_RENAME, "patch 1/1 touches ../stolen, which is outside the tree"),
        (_STOLEN, "patch 1/1 touches .git/config, which is outside the tree"),
        (_SYMLINK, "patch 1/1 touches a symbolic link: a/link b/link"),
        (_SUBMODULE, "patch 1/1 touches a submodule: a/sub b/sub"),
        (_SYMLINK.replace("120000", " 0120777"), "patch 1/1 touches a symbolic link: a/link b/link"),
        (_SUBMODULE.replace("160000", "+160000"), "patch 1/1 touches a submodule: a/sub b/sub"),
        (_BINARY, "patch 1/1 changes the binary file logo"),
        (diff("README", header="", hunk="-1,1073741824 +1,1073741824"), _HUGE),
        (diff("README", header="", hunk="-0,0 +1,99999999999999999999999"), _HUGE),
        (DIFF.replace("+A large", "+A \0 large"), "patch 1/1 holds NUL bytes: a/README b/README"),
        (DIFF.replace("@@ -1 +1 @@", "@@ -1,9 +1,9 @@"), "patch 1/1 holds no usable diff: error: corrupt patch"),
        (diff("d/" * 65 + "f"), "which lies in more than 64 folders or has more than 1024 letters"),
        (diff("d" * 1025), "which lies in more than 64 folders or has more than 1024 letters"),
        (DIFF + "+" * (2 * 1024 * 1024), "patch 1/1 is larger than 2 MB"),
        ("Nothing to apply.\n", "patch 1/1 holds no usable diff: "),
    ],
)
def test_patch_is_screened_before_it_is_applied(tmp_path: Path, body: str, reason: str) -> None:
    assert reason in refusal(tmp_path / "screen", mail("[PATCH] x", body))


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "..", "a/../b", "a//b", ".", "a/.", "a/... /b", "a/.. ", "a\\..\\b", "C:\\x\\..\\y"),
        *(".git", "a/.Git/config", ".git./x", ".git /x", ".git::$INDEX_ALLOCATION/config", "git~1/config"),
        *("a\\.git\\config", ".g\u200dit/x", "\ufeff.git/x", ".gi\u206ft"),
        *(".gitmodules", ".GITMODULES", "gitmod~1", ".git\u200cmodules", ".gitmodules ", "new\nline", "tab\t", "nul\0"),
    ],
)
def test_odd_paths_are_objected_to(path: str) -> None:
    assert objection(path)


@pytest.mark.parametrize(
    "path",
    ["mm/memory.c", ".gitignore", ".gitattributes", "a/.github/x", "ümlaut", "a b", "git/x", "[1]* x", "a...b"],
)
def test_paths_of_people_are_not(path: str) -> None:
    assert objection(path) == ""


def test_the_patch_of_a_series_is_named(tmp_path: Path) -> None:
    good, bad = mail("[PATCH 1/2] x", DIFF), mail("[PATCH 2/2] x", diff("../x"))
    assert refusal(tmp_path / "screen", good, bad) == "patch 2/2 touches ../x, which is outside the tree"


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screened_mails, "MAX_FILES", 3000)
    body = "Text.\n---\n" + "".join(diff(f"f{n}").partition("---\n")[2].partition("--\n")[0] for n in range(3001))
    assert refusal(tmp_path / "screen", mail("[PATCH] x", body)) == "the series touches more than 3000 files"


def test_too_large_series_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screened_mails, "MAX_SERIES_BYTES", 1024**2)
    raws = [mail(f"[PATCH {n}/2] x", DIFF + "x" * 600_000) for n in (1, 2)]
    assert refusal(tmp_path / "screen", *raws) == "the series is larger than 1 MB"


def test_a_patch_of_two_megabytes_takes_no_time(tmp_path: Path) -> None:
    start = time.process_time()
    body = DIFF.partition("diff --git")[0] + "@@ -1" + " 1" * 400_000 + "\n" + "@@ \n" * 200_000 + DIFF
    with pytest.raises(PatchRefusedError):
        screened(tmp_path / "screen", mail("[PATCH] x", body + diff("../x")))
    assert time.process_time() - start < 2


def test_what_a_stranger_left_is_read_only_if_it_is_a_file(tmp_path: Path) -> None:
    import os

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    found = {name: read_strange(tmp_path / name) for name in ("secret", "link", "pipe", "none", ".")}
    assert found == {"secret": b"secret", "link": b"", "pipe": b"", "none": b"", ".": b""}


def test_more_copies_than_a_disk_holds_are_refused(tmp_path: Path) -> None:
    copy = "diff --git a/README b/copy{0}\nsimilarity index 100%\ncopy from README\ncopy to copy{0}\n"
    body = "Text.\n---\n" + "".join(copy.format(n) for n in range(60))
    assert len(screened(tmp_path / "few", mail("[PATCH] x", body))) == 1
    both = [mail(f"[PATCH {n}/2] x", body) for n in (1, 2)]
    assert refusal(tmp_path / "screen", *both) == "the series copies more than 100 files"


def test_text_that_takes_the_date_away_is_refused(tmp_path: Path) -> None:
    """Else git would take the time of day, and each try would make other commits."""
    assert refusal(tmp_path / "screen", mail("[PATCH] x", f"Date: \n\n{DIFF}")) == (
        "patch 1/1 holds no usable diff: its text begins with a line Date: without a date"
    )


def test_git_am_reads_the_lines_that_were_screened(tmp_path: Path) -> None:
    """Else git am would take off one CR more, and read a change that screening took for rubbish."""
    [seen] = screened(tmp_path / "screen", mail("[PATCH] x", DIFF.replace("\n", "\r\r\n")))
    assert b"\r" not in seen.content
    assert seen.paths == {"README"}


def test_blank_lines_at_the_end_of_a_patch_count(ready: MailingList, upstream: Upstream) -> None:
    """Programs that cut blanks off leave empty lines of context, and not everybody has a signature."""
    upstream.commit({"README": "A small tree.\n\n\n\n"})
    fetch_tree(tree=Tree.objects.get())
    body = DIFF.partition("@@")[0] + "@@ -1,4 +1,4 @@\n-A small tree.\n+A large tree.\n\n\n\n"
    raw = mail("[PATCH] README: Grow", body)
    series = applied(ready, [raw])
    assert series.state == S.APPLIED, series.reason
    assert trees_of(series) == full_am(upstream, "master", [raw])


# --- forms that git does not read by itself -------------------------------------------


def multipart(raw: bytes, *, kind: str, encoded: bool, beside: str = "") -> bytes:
    """The same patch with its diff in an attachment."""
    head, _, body = raw.decode().partition("\n\n")
    text, mark, changes = body.partition("diff --git")
    content = base64.encodebytes((mark + changes).encode()).decode() if encoded else mark + changes
    coding = "base64" if encoded else "8bit"
    other = f"--=_x\nContent-Type: text/html\n\n{beside}\n" if beside else ""
    return (
        f'{head}\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="=_x"\n\n'
        f"--=_x\nContent-Type: text/plain; charset=utf-8\n\n{text}\n{other}"
        f'--=_x\nContent-Type: {kind}\nContent-Disposition: attachment; filename="0001.patch"\n'
        f"Content-Transfer-Encoding: {coding}\n\n{content}\n--=_x--\n"
    ).encode()


def test_odd_forms_of_mails_give_the_tree_of_plain_ones(ready: MailingList, upstream: Upstream) -> None:
    plain = upstream.mails(two_patches(upstream))
    head, _, body = plain[1].partition(b"\n\n")
    windows = base64.encodebytes(body.replace(b"\n", b"\r\n"))
    other = plain[1].replace(
        b"From: Ada Author <ada@example.org>", b"From: =?utf-8?q?Ad=C3=A4?= Author <ada@example.org>"
    )
    forms = [
        multipart(plain[1], kind="text/x-patch", encoded=False),
        multipart(plain[1], kind="application/octet-stream", encoded=True),
        multipart(plain[1], kind="text/x-diff", encoded=True, beside="<pre>diff --git a/x b/x<br>--- a/x</pre>"),
        head + b"\nContent-Transfer-Encoding: base64\nContent-Type: text/plain; charset=utf-8\n\n" + windows,
        other.replace(b"\n\n", b"\n\nFrom: Grace Author <grace@example.org>\n\n", 1),
    ]
    expected = full_am(upstream, "master", plain)
    for number, form in enumerate(forms):
        mails = [raw.replace(b".1793500000.", b".179350%04d." % number) for raw in (plain[0], form)]
        series = applied(ready, mails)
        assert (number, series.state) == (number, S.APPLIED), series.reason
        assert trees_of(series) == expected
        author = series.patches.get(index=2).revision
        assert author is not None
        assert author.author == ("Grace Author <grace@example.org>" if number == 4 else "Ada Author <ada@example.org>")
        Series.objects.update(state=S.SUPERSEDED)


# --- what only the tree tells -----------------------------------------------------------


def test_patch_through_a_symbolic_link_of_the_tree_is_refused(tmp_path: Path, linux_mm: MailingList) -> None:
    upstream = small_tree(tmp_path / "with-link")
    (upstream.path / "docs").symlink_to("/etc")
    upstream.commit({}, "Link")
    Tree.objects.update(url=str(upstream.path))
    fetch_tree(tree=Tree.objects.get())
    series = applied(linux_mm, [mail("[PATCH] x", diff("docs/passwd"))])
    assert series.state == S.REFUSED
    assert "patch 1/1 touches docs/passwd through docs, a symbolic link of the tree" in series.reason


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
