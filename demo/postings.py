"""The series that the demo posts, what each must end with, and the list archive that holds them."""

import email
import email.policy
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from email.utils import formatdate
from pathlib import Path

from demo.processes import IDENTITY, DemoError, git, run
from demo.source import BRANCH

_WITH_ERMS = ("haswell", "zen3")
_WITHOUT_ERMS = ("nehalem", "zen1")


@dataclass(frozen=True)
class Outcome:
    """`verdicts` by microarchitecture; `same_image` when both kernels must be the same bytes.

    `ends` says, for a series that is not meant to reach a verdict, what stops it. One that is not `mailed` has a draft
    that waits for a person: nobody is sent an improvement as news. `culprit` is the patch that bisection must name,
    on each microarchitecture that moved.
    """

    kind: str
    verdicts: Mapping[str, str]
    same_image: bool = False
    ends: str = ""
    mailed: bool = True
    culprit: int = 0


def _with_erms(verdict: str) -> dict[str, str]:
    return {**dict.fromkeys(_WITH_ERMS, verdict), **dict.fromkeys(_WITHOUT_ERMS, "unchanged")}


OUTCOMES = {
    "slow": Outcome("regressed", _with_erms("regressed"), culprit=2),
    "split": Outcome("split", {**_with_erms("improved"), "zen3": "regressed"}, culprit=4),
    "revert": Outcome("improved", _with_erms("improved"), mailed=False, culprit=1),
    "null": Outcome("unchanged", _with_erms("unchanged"), same_image=True),
    "broken": Outcome("", {}, ends="its kernel does not compile"),
    "panic": Outcome("", {}, ends="its kernel does not boot"),
    "conflict": Outcome("", {}, ends="it does not apply"),
}


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


NAME = "demo-list"
_MAILS = Path(__file__).resolve().parent / "mails"


class Archive:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder.resolve()
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{NAME}"

    @property
    def epoch(self) -> Path:
        return self.folder / NAME / "git" / "0.git"

    def environment(self) -> dict[str, str]:
        """What keeps public-inbox out of the user's home: its configuration, and the cache of its compiled parts."""
        home = self.folder / "home"
        return {
            "HOME": str(home),
            "PI_CONFIG": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "ORIGINAL_RECIPIENT": LIST_ADDRESS,
        }

    def server(self) -> tuple[str, ...]:
        """The command that serves it, in the foreground."""
        return ("public-inbox-httpd", "-W0", "-l", f"127.0.0.1:{self.port}")

    def prepare(self, mails: Iterable[bytes] = ()) -> None:
        """Make the archive with `mails` in it, or give the one that is there its present address."""
        made = (self.folder / "ready").exists()
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        if not made:
            self._run("public-inbox-init", "-V2", "-L", "basic", NAME, str(self.folder / NAME), self.url, LIST_ADDRESS)
        for name, value in (
            ("publicinboxmda.spamcheck", "none"),
            (f"publicinbox.{NAME}.url", self.url),
            # Lists of the outside world hold HTML mails, which public-inbox would refuse.
            (f"publicinbox.{NAME}.filter", "PublicInbox::Filter::Mirror"),
        ):
            git(self.folder, "config", "-f", str(self.folder / "config"), name, value)
        if not made:
            for mail in mails:
                self.deliver(mail)
            (self.folder / "ready").touch()

    def deliver(self, mail: bytes) -> None:
        """Hand one mail over as a mail server would. A mail that is there already changes nothing."""
        self._run("public-inbox-mda", "--no-precheck", stdin=mail)

    def _run(self, *command: str, stdin: bytes | None = None) -> None:
        run(command, cwd=self.folder, env={**os.environ, **self.environment()}, stdin=stdin)


def discussion(posted_at: int) -> list[bytes]:
    """Mails between people, as every list has them: a question, an answer that quotes a diff, one with an HTML part."""
    mails = []
    for number, name in enumerate(("discussion.eml", "answer.eml", "html.eml"), start=1):
        text = (_MAILS / name).read_text(encoding="utf-8")
        mails.append(text.replace("{date}", formatdate(posted_at - 3600 + 60 * number)).encode())
    return mails


def remark(posting: Posting, patch: bytes) -> bytes:
    """A person's answer to the last patch of a posting; it quotes the diff and is no patch."""
    mail = email.message_from_bytes(patch, policy=email.policy.default)
    diff = mail.get_content().partition("\ndiff --git ")[2].splitlines()[:6]
    parent = str(mail["Message-ID"])
    root = f"<{posting.root_message_id}>"
    quoted = [f"> diff --git {diff[0]}", *(f"> {line}" for line in diff[1:])]
    lines = [
        "From: Jon Example <jon@tidemark.example>",
        f"To: {IDENTITY}",
        f"Cc: {LIST_ADDRESS}",
        f"Subject: Re: {mail['Subject']}",
        f"Message-ID: <remark-{parent.strip('<>')}>",
        f"In-Reply-To: {parent}",
        f"References: {' '.join(dict.fromkeys((root, parent)))}",
        f"Date: {formatdate(posting.posted_at + 60)}",
        "",
        *quoted,
        "",
        "What does it cost, and on which CPUs?",
        "",
    ]
    return "\n".join(lines).encode()
