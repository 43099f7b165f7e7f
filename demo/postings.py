"""The series that the demo posts: commits made from small patch files, and mails made of them by format-patch."""

import json
import os
import secrets
import tempfile
import time
from dataclasses import asdict, dataclass
from email.utils import formatdate
from pathlib import Path

from demo.errors import DemoError
from demo.processes import IDENTITY, git
from demo.source import BRANCH

SERIES = Path(__file__).resolve().parent / "series"
LIST_ADDRESS = "demo-list@tidemark.example"
_ID_DOMAIN = "tidemark.example"
# Fixed, so that the commits are the same everywhere; the mails carry the time of their posting.
_COMMIT_DATE = "2026-01-05T12:00:00 +0000"


@dataclass(frozen=True)
class Posting:
    """One act of sending a series. Kept in a file, so that an interrupted run sends the same mails, not others."""

    kind: str
    run: str
    posted_at: int
    base: str
    branch: str

    def message_id(self, index: int) -> str:
        return f"{self.kind}-{self.run}-{index}@{_ID_DOMAIN}"

    @property
    def has_cover(self) -> bool:
        return (SERIES / self.kind / "cover.txt").exists()

    @property
    def root_message_id(self) -> str:
        return self.message_id(0 if self.has_cover else 1)


def kinds() -> list[str]:
    return sorted(path.name for path in SERIES.iterdir() if path.is_dir())


def ensure_posting(folder: Path, kind: str, repository: Path, *, again: bool = False) -> Posting:
    """The posting of `kind` that was begun before, or a new one on the tree's head."""
    known = find_posting(folder, kind)
    if known and not again:
        return known
    base, branch = _prepare_base(repository, kind)
    posting = Posting(kind, secrets.token_hex(4), int(time.time()), base, branch)
    folder.mkdir(parents=True, exist_ok=True)
    path = _note(folder, kind)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(posting)), encoding="utf-8")
    part.rename(path)
    return posting


def find_posting(folder: Path, kind: str) -> Posting | None:
    path = _note(folder, kind)
    return Posting(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _note(folder: Path, kind: str) -> Path:
    return folder / f"posting-{kind}.json"


def make_mails(repository: Path, posting: Posting) -> list[bytes]:
    """The mails of a posting, cover letter first; the same bytes at every call."""
    folder = SERIES / posting.kind
    start = posting.base
    unposted = folder / "unposted.patch"
    if unposted.exists():
        start = commit_patch(repository, start, unposted)
    head = start
    for patch in sorted(folder.glob("[0-9]*.patch")):
        head = commit_patch(repository, head, patch)
    git(repository, "update-ref", f"refs/demo/{posting.kind}", head)
    with tempfile.TemporaryDirectory(prefix="tidemark-demo-") as out:
        _format(repository, posting, start, head, Path(out))
        texts = [path.read_text(encoding="utf-8") for path in sorted(Path(out).iterdir())]
    first = 0 if posting.has_cover else 1
    return [_as_mail(posting, index, text) for index, text in enumerate(texts, start=first)]


def commit_patch(repository: Path, parent: str, patch: Path) -> str:
    """Commit a patch file on `parent` in an index alone: nothing of the tree is checked out."""
    message, mark, diff = patch.read_text(encoding="utf-8").partition("\n---\n")
    if not mark:
        raise DemoError(f"{patch} has no line of three dashes between message and diff")
    with tempfile.TemporaryDirectory(prefix="tidemark-demo-") as folder:
        env = {
            "GIT_INDEX_FILE": str(Path(folder) / "index"),
            "GIT_AUTHOR_DATE": _COMMIT_DATE,
            "GIT_COMMITTER_DATE": _COMMIT_DATE,
        }
        git(repository, "read-tree", parent, env=env)
        git(repository, "apply", "--cached", "-", env=env, stdin=diff.encode())
        tree = git(repository, "write-tree", env=env)
        return git(repository, "commit-tree", tree, "-p", parent, "-m", message, env=env)


def _prepare_base(repository: Path, kind: str) -> tuple[str, str]:
    """The commit a series is made for, and the branch that has it; some need a tree that has been changed already."""
    head = git(repository, "rev-parse", f"refs/heads/{BRANCH}")
    patch = SERIES / kind / "base.patch"
    if not patch.exists():
        return head, BRANCH
    branch = f"{BRANCH}-{kind}"
    head = commit_patch(repository, head, patch)
    git(repository, "update-ref", f"refs/heads/{branch}", head)
    return head, branch


def _format(repository: Path, posting: Posting, start: str, head: str, out: Path) -> None:
    options = ["--quiet", "--no-thread", "--no-numbered" if not posting.has_cover else "--numbered"]
    options += ["--cover-letter"] if posting.has_cover else []
    git(repository, "format-patch", *options, "-o", str(out), f"{start}..{head}", env=dict(os.environ, TZ="UTC"))


def _as_mail(posting: Posting, index: int, text: str) -> bytes:
    """format-patch's file with the headers that sending adds, and the words of the cover letter."""
    head, _, body = text.partition("\n\n")
    lines = [line for line in head.splitlines() if not line.startswith(("From ", "Date:", "From:"))]
    lines.insert(0, f"From: {IDENTITY}")
    lines.append(f"To: {LIST_ADDRESS}")
    lines.append(f"Date: {formatdate(posting.posted_at + index)}")
    lines.append(f"Message-ID: <{posting.message_id(index)}>")
    if posting.message_id(index) != posting.root_message_id:
        root = f"<{posting.root_message_id}>"
        lines += [f"In-Reply-To: {root}", f"References: {root}"]
    head = "\n".join(lines)
    if index == 0:
        title, _, words = (SERIES / posting.kind / "cover.txt").read_text(encoding="utf-8").partition("\n")
        head = head.replace("*** SUBJECT HERE ***", title)
        body = body.replace("*** BLURB HERE ***", words.strip())
    if posting.message_id(index) == posting.root_message_id:
        body = _with_base(body, posting.base)
    return f"{head}\n\n{body}".encode()


def _with_base(body: str, base: str) -> str:
    """What `format-patch --base` adds; given by hand because of the series whose base was never posted."""
    text, mark, signature = body.rpartition("\n-- \n")
    return f"{text}\n\nbase-commit: {base}{mark}{signature}"
