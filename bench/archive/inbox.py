"""A real public-inbox archive on loopback, and what its keepers do to it between two visits of a watcher."""

import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bench.mail.mailboxes import Thread

NAME = "archive"
ADDRESS = "archive@tidemark.example"
_FILL = Path(__file__).with_name("fill_archive.pl")
_START_SECONDS = 30.0
_ID = re.compile(rb"(?im)^message-id:\s*<([^<>\s]+)>")
_CHANGE = re.compile(r":\d+ 100644 [0-9a-f]+ ([0-9a-f]{40}) [A-Z]\d*\t([md])")
_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


class ToolError(Exception):
    """A program of public-inbox is missing or failed."""


@dataclass
class Inbox:
    """`folder` holds the archive, and the home of all programs, so that nothing of the user's is touched."""

    folder: Path
    epoch_bytes: int
    port: int = 0

    @classmethod
    def create(cls, folder: Path, *, epoch_bytes: int) -> "Inbox":
        inbox = cls(folder, epoch_bytes, free_port())
        inbox.home.mkdir(parents=True)
        inbox._run("public-inbox-init", "-V2", "-L", "basic", NAME, str(inbox.path), inbox.url, ADDRESS)
        inbox._run("git", "config", "-f", str(inbox.home / "config"), "publicinboxmda.spamcheck", "none")
        return inbox

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def path(self) -> Path:
        return self.folder / NAME

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{NAME}"

    def add(self, mails: Iterable[bytes]) -> int:
        """How many the archive took: it drops those that it has."""
        framed = b"".join(b"%d\n" % len(mail) + mail for mail in mails)
        return int(self._run("perl", str(_FILL), NAME, str(self.epoch_bytes), stdin=framed))

    def remove(self, mail: bytes) -> None:
        self._run("public-inbox-learn", "rm", "--all", stdin=mail)

    def purge(self, mail: bytes) -> None:
        self._run("public-inbox-purge", str(self.path), stdin=mail)

    def edit(self, mail: bytes) -> None:
        """A line more, at its end, as a person does it in an editor."""
        found = _ID.search(mail)
        if not found:
            raise ToolError("a mail without Message-ID cannot be edited")
        command = ("public-inbox-edit", "--force", "-m", found[1].decode(), str(self.path))
        self._run(*command, GIT_EDITOR="sed -i -e '$a A line that was added later.'")

    @contextmanager
    def served(self) -> Iterator[None]:
        """Over HTTP while the block runs."""
        command = ("public-inbox-httpd", "-W0", "-l", f"127.0.0.1:{self.port}")
        quiet = subprocess.DEVNULL
        server = subprocess.Popen(command, env=self._environment(), stdout=quiet, stderr=quiet)
        try:
            self._await(server)
            yield
        finally:
            server.terminate()
            server.wait()

    def epochs(self) -> list[Path]:
        return sorted((self.path / "git").glob("*.git"), key=lambda path: int(path.stem))

    def live(self) -> set[str]:
        """The blobs that the archive holds in the end, read by git alone."""
        there: set[str] = set()
        for epoch in self.epochs():
            for line in self._log(epoch).splitlines():
                if (change := _CHANGE.fullmatch(line)) and change[1] != _EMPTY_BLOB:
                    (there.add if change[2] == "m" else there.discard)(change[1])
        return there

    def counted(self) -> dict[str, int]:
        """Commits of all epochs: of mails, of deletions, and those that a purge emptied."""
        logs = [self._log(epoch) for epoch in self.epochs()]
        changes = [found for log in logs for line in log.splitlines() if (found := _CHANGE.fullmatch(line))]
        return {
            "epochs": len(logs),
            "mails": sum(c[2] == "m" and c[1] != _EMPTY_BLOB for c in changes),
            "deletions": sum(c[2] == "d" and c[1] != _EMPTY_BLOB for c in changes),
            "purged": sum(c[1] == _EMPTY_BLOB for c in changes),
        }

    def _log(self, epoch: Path) -> str:
        options = ("--reverse", "--raw", "--no-abbrev", "--no-renames", "--format=")
        return self._run("git", f"--git-dir={epoch}", "log", *options, "HEAD") if self._has_head(epoch) else ""

    def _has_head(self, epoch: Path) -> bool:
        command = ("git", f"--git-dir={epoch}", "rev-parse", "--verify", "--quiet", "HEAD")
        done = subprocess.run(command, env=self._environment(), stdout=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def _environment(self) -> dict[str, str]:
        home = str(self.home)
        own = {"HOME": home, "PI_CONFIG": f"{home}/config", "XDG_CACHE_HOME": f"{home}/.cache"}
        return {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "ORIGINAL_RECIPIENT": ADDRESS, **own}

    def _run(self, *command: str, stdin: bytes = b"", **more: str) -> str:
        environment = {**self._environment(), **more}
        try:
            done = subprocess.run(command, env=environment, input=stdin, capture_output=True, check=False)
        except OSError as error:
            raise ToolError(f"{command[0]} cannot be started: {error}") from error
        if done.returncode:
            raise ToolError(f"{command[0]}: {done.stderr.decode(errors='replace')[-500:]}")
        return done.stdout.decode(errors="replace")

    def _await(self, server: "subprocess.Popen[bytes]") -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and server.poll() is None:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise ToolError("public-inbox-httpd does not listen")


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Which part of the mails each round brings.
SHARES = (0.35, 0.2, 0.15, 0.1, 0.1, 0.1)
# So many threads go on at the same time, so that series and their versions arrive in parts.
_AT_ONCE = 60
# One mail of so many is kept in mind, to be deleted, purged or edited later.
_KEPT = 25
_ID_LINE = re.compile(rb"(?im)^message-id:\s*<[^<>\s]+>")


def interleaved(threads: Iterable[Thread], chance: random.Random) -> Iterator[bytes]:
    """The mails of many threads at a time, each thread in its order."""
    waiting = iter(threads)
    running = [iter(thread) for thread in islice(waiting, _AT_ONCE)]
    while running:
        place = chance.randrange(len(running))
        mail = next(running[place], None)
        if mail is not None:
            yield mail
            continue
        following = next(waiting, None)
        if following is None:
            running.pop(place)
        else:
            running[place] = iter(following)


@dataclass
class Keepers:
    """Let the archive grow and change, round by round."""

    inbox: Inbox
    mails: Sequence[bytes]
    chance: random.Random
    kept: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    given: int = 0

    def act(self, number: int) -> int:
        """What happens before round `number`; returns how many mails the archive took."""
        if number == 1:
            self._remove(20)
        elif number == 2:  # noqa: PLR2004 (the third round)
            self._purge(3)
        elif number == 3:  # noqa: PLR2004 (the fourth)
            self._edit(3)
            self._remove(10)
        taken = self._grow(SHARES[number])
        if number == len(SHARES) - 2:
            self.inbox.purge(self._newest())
        elif number == len(SHARES) - 1:
            # No spam after all; and the newest mail is edited.
            taken += self.inbox.add(self.removed[:3])
            self.inbox.edit(self._newest())
        return taken

    def _newest(self) -> bytes:
        """What a history ends with is the hardest to tell from one that was cut off."""
        return next(mail for mail in reversed(self.mails[: self.given]) if _ID_LINE.search(mail))

    def _grow(self, share: float) -> int:
        last = len(self.mails) if self.given + share * len(self.mails) > 0.999 * len(self.mails) else None
        end = last or self.given + int(share * len(self.mails))
        some = self.mails[self.given : end]
        self.given = end
        self.kept += [mail for mail in some[: -len(some) // 10 or None : _KEPT] if _ID_LINE.search(mail)]
        return self.inbox.add(some)

    def _take(self, count: int) -> list[bytes]:
        self.chance.shuffle(self.kept)
        taken, self.kept = self.kept[:count], self.kept[count:]
        return taken

    def _remove(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.remove(mail)
            self.removed.append(mail)

    def _purge(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.purge(mail)

    def _edit(self, count: int) -> None:
        for mail in self._take(count):
            self.inbox.edit(mail)
