"""Real mails by thread, and processes that read them in turns; standard library only, so that peers can."""

import json
import mailbox
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "mail-corpus"
_ENDINGS = frozenset({".mbox", ".eml", ".mbx", ".mail"})
_NAMING = frozenset({b"message-id", b"in-reply-to", b"references"})
_HEADER = re.compile(rb"(?m)^([A-Za-z-]+):((?:.*\n(?=[ \t]))*.*\n?)")
_ID = re.compile(rb"<([^<>\s]+)>")
_END = re.compile(rb"\r?\n\r?\n")
Thread = Sequence[bytes]


class NoMailsError(Exception):
    """The folder is missing or holds no mail."""


def threads_in(folder: Path) -> list[Thread]:
    """The mails of every file below `folder`, in the order of the files' names. Raises NoMailsError."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())
    found = [mails for path in files if (mails := mails_of(path))]
    if not found:
        raise NoMailsError(f"no mails in {folder}: name a folder that holds mbox files")
    return found


def mails_of(path: Path) -> Thread:
    """All mails of an mbox; a file that is none holds one mail."""
    box = mailbox.mbox(path, create=False)
    try:
        return [box.get_bytes(key) for key in box.iterkeys()] or [path.read_bytes()]
    finally:
        box.close()


def renamed(mails: Thread, copy: int) -> Thread:
    """The same thread under other Message-IDs, by other senders; copy 0 is the thread itself."""
    return [_renamed(mail, b"copy-%d." % copy) for mail in mails] if copy else mails


def _renamed(mail: bytes, mark: bytes) -> bytes:
    end = _END.search(mail)
    head, rest = (mail[: end.start()], mail[end.start() :]) if end else (mail, b"")

    def other(header: re.Match[bytes]) -> bytes:
        name = header[1].lower()
        if name in _NAMING:
            return _ID.sub(rb"<" + mark + rb"\1>", header[0])
        # Otherwise patches that were sent without threading would all be by one person, in the same minute.
        return header[0].replace(b"@", b"@" + mark) if name == b"from" else header[0]

    return _HEADER.sub(other, head) + rest


def many(threads: Sequence[Thread], mails: int) -> Iterator[Thread]:
    """Whole threads until there are at least so many mails: renamed copies where there are not enough of them."""
    given = 0
    for copy in count():
        for thread in threads:
            if given >= mails:
                return
            yield renamed(thread, copy)
            given += len(thread)


# One process for each program that reads mails; it does a round when it is asked, so that programs can take turns.
#
# Needs nothing but the standard library: the processes of other programs run in their own environments.

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a program made of the mails: how many it read, could not read, and how many series it found."""

    read: int
    failed: int
    series: int


@dataclass(frozen=True)
class Round:
    """CPU seconds of one round, those of programs that it started among them."""

    seconds: float
    outcome: Outcome


class WorkerError(Exception):
    """A program could not be started, or it ended early."""


def write_threads(path: Path, threads: Sequence[Thread]) -> None:
    with path.open("wb") as file:
        for thread in threads:
            file.write(b"%d\n" % len(thread))
            for mail in thread:
                file.write(b"%d\n" % len(mail) + mail)


def read_threads(path: Path) -> list[Thread]:
    threads: list[Thread] = []
    with path.open("rb") as file:
        while line := file.readline():
            threads.append([file.read(int(file.readline())) for _ in range(int(line))])
    return threads


def serve(one_round: Callable[[Sequence[Thread]], Outcome]) -> None:
    """The worker's side: a round for every line of standard input, over the mails of the file that is named last."""
    threads = read_threads(Path(sys.argv[-1]))
    # What programs print must not pass for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        before = _cpu_seconds()
        outcome = one_round(threads)
        spent = _cpu_seconds() - before
        print(json.dumps({"seconds": spent, "outcome": asdict(outcome)}), file=answers, flush=True)


def _cpu_seconds() -> float:
    """Of this process and of those that it started; in microseconds, where os.times() counts in hundredths."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Worker:
    """A program that waits for its turns; to be closed."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def turn(self) -> Round:
        """Raises WorkerError."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = json.loads(self._answer())
        return Round(answer["seconds"], Outcome(**answer["outcome"]))

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise WorkerError(f"{self.name} ended with code {self._process.returncode}")
        return line
