"""Real git repositories, real patch mails and real list epochs, made on the spot."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Series
from server.sources.series.formation import group_stale
from server.sources.trust.series_check import check_series

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada Author",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada Author",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    # No process beside each commit that looks whether there is something to pack.
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}
_STAMP = re.compile(rb"\.\d{10}\.git\.")
NOON = 1_793_534_400


def git(where: Path, *args: str, stdin: bytes = b"", **environment: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=where, env=_ENVIRONMENT | environment, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="replace").strip()


@dataclass
class Upstream:
    """A repository with a work tree; commits are a minute apart."""

    path: Path
    commits: int = 0

    @classmethod
    def create(cls, path: Path) -> "Upstream":
        path.mkdir(parents=True)
        git(path, "init", "-q", "-b", "master", "--template=")
        return cls(path)

    def commit(self, files: dict[str, str], message: str = "mm: Change something") -> str:
        for name, content in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        git(self.path, "add", "-A")
        return self.commit_index(message)

    def commit_index(self, message: str) -> str:
        self.commits += 1
        date = f"{NOON + 60 * self.commits} +0000"
        git(self.path, "commit", "-q", "-m", message, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
        return git(self.path, "rev-parse", "HEAD")

    def git(self, *args: str) -> str:
        return git(self.path, *args)

    def mails(self, commits: str, *options: str, stamp: int = 1_793_500_000) -> list[bytes]:
        """Git format-patch of a range, threaded, as mails without their From line. `stamp` makes Message-IDs."""
        folder = self.path.parent / f"mails-{stamp}-{len(list(self.path.parent.glob('mails-*')))}"
        git(self.path, "format-patch", "-q", "--thread=shallow", "-o", str(folder), *options, commits)
        found = []
        for file in sorted(folder.iterdir()):
            _, _, mail = file.read_bytes().partition(b"\n")
            mail = mail.replace(b"*** SUBJECT HERE ***", b"mm: Make things better")
            found.append(_STAMP.sub(b".%d.git." % stamp, mail))
        return found


def lines(count: int = 40, **changed: str) -> str:
    """A file of numbered lines; `line7="text"` replaces one."""
    return "".join(changed.get(f"line{n}", f"line {n}") + "\n" for n in range(1, count + 1))


# What the first small tree of this process consists of: it is the same each time, and half the tests begin with it.
_SMALL_TREE: dict[Path, bytes] = {}


def small_tree(path: Path) -> Upstream:
    if not _SMALL_TREE:
        upstream = Upstream.create(path)
        files = {"mm/memory.c": lines(), "mm/rmap.c": lines(), "README": "A tree.\n", "kernel/fork.c": lines(20)}
        upstream.commit(files)
        upstream.commit({"README": "A small tree.\n"}, "README: Say more")
        _SMALL_TREE.update({file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()})
        return upstream
    for name, content in _SMALL_TREE.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return Upstream(path, commits=2)


def two_patches(upstream: Upstream) -> str:
    """Two commits on a branch of their own; the range of them."""
    base = upstream.git("rev-parse", "HEAD")
    upstream.git("checkout", "-q", "-b", f"work-{upstream.commits}")
    upstream.commit({"mm/memory.c": lines(line7="clear the page")}, "mm: Clear the page")
    upstream.commit({"mm/memory.c": lines(line7="clear the page", line30="twice")}, "mm: Clear it twice")
    head = upstream.git("rev-parse", "HEAD")
    upstream.git("checkout", "-q", "master")
    return f"{base}..{head}"


@dataclass
class Archive:
    """A public-inbox v2 epoch written by plumbing: one commit per mail, the mail in `m`."""

    path: Path
    count: int = 0

    @classmethod
    def create(cls, inbox: Path, number: int = 0) -> "Archive":
        path = inbox / "git" / f"{number}.git"
        path.mkdir(parents=True)
        git(path, "init", "-q", "--bare", "-b", "master", "--template=")
        return cls(path)

    def add(self, *mails: bytes) -> None:
        self._commit("m", mails)

    def delete(self, mail: bytes) -> None:
        self._commit("d", [mail])

    def purge(self, blob: str) -> None:
        """What stands in the place of a purged mail: an empty `m`, and the id of the mail in the commit's message."""
        self._commit("m", [b""], f"purged {blob}")

    def rewrite(self, *mails: bytes) -> None:
        """What a purge does: a new history without some mails."""
        git(self.path, "update-ref", "-d", "refs/heads/master")
        self.count += 1000
        self.add(*mails)

    def _commit(self, name: str, contents: Sequence[bytes], message: str = "a mail") -> None:
        """One commit for each of them, by one process for all."""
        stream = []
        parent = bool(git(self.path, "for-each-ref", "refs/heads/master"))
        for content in contents:
            self.count += 1
            who = f"Ada Author <ada@example.org> {NOON + self.count} +0000"
            lines = [
                "commit refs/heads/master",
                f"author {who}",
                f"committer {who}",
                f"data {len(message) + 1}",
                message,
            ]
            lines += ["", "from refs/heads/master^0"] if parent else [""]
            lines += ["deleteall", f"M 100644 inline {name}", f"data {len(content)}", ""]
            stream += ["\n".join(lines).encode(), content, b"\n"]
            parent = False
        git(self.path, "fast-import", "--quiet", stdin=b"".join(stream))


def mail(
    subject: str,
    body: str = "Text.\n",
    *,
    message_id: str = "one@example.org",
    sender: str = "Ada Author <ada@example.org>",
    parent: str = "",
    date: str = "Sun, 01 Nov 2026 12:00:00 +0000",
    headers: str = "",
) -> bytes:
    thread = f"In-Reply-To: <{parent}>\nReferences: <{parent}>\n" if parent else ""
    top = f"From: {sender}\nTo: linux-mm@example.org\nSubject: {subject}\nDate: {date}\nMessage-ID: <{message_id}>\n"
    return f"{top}{thread}{headers}\n{body}".encode()


DIFF = """\
Do this.

Signed-off-by: Ada Author <ada@example.org>
---
 README | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/README b/README
index 1111111..2222222 100644
--- a/README
+++ b/README
@@ -1 +1 @@
-A small tree.
+A large tree.
--
2.39.5
"""


def deliver(mailing_list: MailingList, *mails: bytes) -> list[Message]:
    """Store these mails, make series of them, and check the senders of those that became whole."""
    stored = [store_message(mailing_list=mailing_list, raw=raw) for raw in mails]
    group_stale()
    for series in Series.objects.filter(state=Series.State.HELD, checked_at=None):
        check_series(series=series)
    return [Message.objects.get(pk=message.pk) for message in stored]
