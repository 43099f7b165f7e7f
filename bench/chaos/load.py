"""What is put in while parts fail: series and talk by mail, heads of a tree; and what readers are answered."""

import hashlib
import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate

from bench.chaos.stage import AUTHOR, Stage, push_head
from demo.postings import LIST_ADDRESS
from demo.processes import DemoError, git

_DOMAIN = "chaos.tidemark.example"


@dataclass(frozen=True)
class Posted:
    """One series; `number` tells its mails."""

    number: int
    patches: int
    message_ids: tuple[str, ...]

    @property
    def root(self) -> str:
        return self.message_ids[0]


def series_mails(number: int, patches: int, base: str) -> tuple[Posted, list[bytes]]:
    """A single patch, or a cover letter and its patches; each adds the file by which the builder knows it."""
    covered = patches > 1
    places = range(0 if covered else 1, patches + 1)
    ids = tuple(f"series-{number}-{place}@{_DOMAIN}" for place in places)
    posted = Posted(number, patches, ids)
    mails = [_series_mail(posted, place, message_id, base) for place, message_id in zip(places, ids, strict=True)]
    return posted, mails


def _series_mail(posted: Posted, place: int, message_id: str, base: str) -> bytes:
    mark = f"PATCH {place}/{posted.patches}" if posted.patches > 1 else "PATCH"
    what = "Two steps" if place == 0 else f"Step {place}"
    answers = [] if message_id == posted.root else [f"In-Reply-To: <{posted.root}>", f"References: <{posted.root}>"]
    head = _head(f"[{mark}] mm: {what} of posting {posted.number}", message_id, answers)
    foot = f"\nbase-commit: {base}\n" if message_id == posted.root else ""
    if place == 0:
        return f"{head}\n\nBoth together.\n{foot}-- \n2.47.0\n".encode()
    text = f"posting {posted.number}\n"
    blob = hashlib.sha1(f"blob {len(text)}\0{text}".encode(), usedforsecurity=False).hexdigest()[:12]
    name = f"patch-{place:02}"
    diff = f"diff --git a/{name} b/{name}\nnew file mode 100644\nindex 000000000000..{blob}\n"
    diff += f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{text}"
    body = (
        f"It copies in one go.\n\nSigned-off-by: Ada Author <{AUTHOR}>\n---\n {name} | 1 +\n\n{diff}{foot}-- \n2.47.0\n"
    )
    return f"{head}\n\n{body}".encode()


def talk_mail(message_id: str) -> bytes:
    return f"{_head('Which machines are slow', message_id, [])}\n\nDoes anybody know?\n".encode()


def _head(subject: str, message_id: str, more: Sequence[str]) -> str:
    lines = [f"From: Ada Author <{AUTHOR}>", f"To: {LIST_ADDRESS}", f"Subject: {subject}"]
    lines += [f"Date: {formatdate()}", f"Message-ID: <{message_id}>", *more]
    return "\n".join(lines)


# More series under way than this, and the machines are behind: the next one waits.
_MOST_OPEN = 6
_PAUSES = (3.0, 8.0)
_COVERED = 0.3


@dataclass
class Load:
    """`open_series` tells how many are under way, or None while the database does not say."""

    stage: Stage
    open_series: Callable[[], int | None]
    over: threading.Event = field(default_factory=threading.Event)
    series: list[Posted] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _archive: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        dice = random.Random(self.stage.seed)  # noqa: S311 (mails, no secrets)
        while not self.over.wait(dice.uniform(*_PAUSES)):
            self.talk(f"talk-{len(self.mails)}")
            waiting = self.open_series()
            if waiting is None or waiting >= _MOST_OPEN:
                continue
            try:
                self.post(dice)
            except DemoError as error:
                # A tree that is away has no head to work on.
                self.troubles.append(str(error))

    def post(self, dice: random.Random) -> None:
        base = git(self.stage.tree, "rev-parse", "refs/heads/master")
        patches = 2 if dice.random() < _COVERED else 1
        posted, mails = series_mails(len(self.series) + 1, patches, base)
        order = list(range(len(mails)))
        # Mails of one series come in any order.
        dice.shuffle(order)
        for place in order:
            self._deliver(posted.message_ids[place], mails[place])
        self.series.append(posted)

    def talk(self, name: str) -> str:
        message_id = f"{name}@{_DOMAIN}"
        self._deliver(message_id, talk_mail(message_id))
        return message_id

    def push(self) -> str:
        sha = push_head(self.stage.tree, len(self.heads) + 1)
        self.heads.append(sha)
        return sha

    def _deliver(self, message_id: str, mail: bytes) -> None:
        with self._archive:
            self.stage.archive.deliver(mail)
            self.mails.append(message_id)


# As a balancer does: an answer that takes longer is asked of the next server.
_FIRST_SECONDS, _LONGEST_SECONDS = 2.5, 10.0
_PAUSE_SECONDS = 0.25
_FOUND, _BROKEN = 200, 500
_PATHS = (
    "/", "/series/", "/findings/", "/machines/", "/queue/", "/mails/", "/status/", "/trees/", "/trees/chaos/",
    "/api/v1/series/", "/api/v1/findings/", "/api/v1/sessions/", "/series/1/", "/findings/1/", "/machines/zen3-1/",
)  # fmt: skip


@dataclass(frozen=True)
class Read:
    """One question; `at` is when it was asked, `seconds` until the answer or until nobody waited any more."""

    at: float
    seconds: float
    path: str
    status: int


@dataclass
class Reader:
    """Asks a page after the other, of one server and then of the other, as readers behind a balancer do."""

    ports: Sequence[int]
    seed: int
    over: threading.Event
    reads: list[Read] = field(default_factory=list)

    def run(self) -> None:
        dice = random.Random(self.seed)  # noqa: S311 (pages, no secrets)
        while not self.over.wait(_PAUSE_SECONDS):
            path = dice.choice(_PATHS)
            began = time.time()
            status = self._asked(path, began, dice.sample(list(self.ports), len(self.ports)))
            self.reads.append(Read(began, time.time() - began, path, status))

    def _asked(self, path: str, began: float, ports: Sequence[int]) -> int:
        status = 0
        for port in self._turns(ports):
            left = _LONGEST_SECONDS - (time.time() - began)
            if left <= 0:
                return status
            status = _answer(port, path, min(_FIRST_SECONDS, left))
            if 0 < status < _BROKEN:
                return status
            time.sleep(min(_PAUSE_SECONDS, left))
        return status

    @staticmethod
    def _turns(ports: Sequence[int]) -> Iterator[int]:
        while True:
            yield from ports


def _answer(port: int, path: str, seconds: float) -> int:
    """The status; 0 where none came."""
    connected = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connected.request("GET", path)
        answer = connected.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connected.close()
    return answer.status


def is_ready(port: int) -> bool:
    return _answer(port, "/readyz", _FIRST_SECONDS) == _FOUND


def share_answered(reads: Sequence[Read], stops: Sequence[tuple[float, float]]) -> tuple[int, int, list[Read]]:
    """Reads that were answered, all that were asked outside of `stops` of the database, and those that were not."""
    outside = [
        read for read in reads if not any(read.at < end and read.at + read.seconds > begin for begin, end in stops)
    ]
    failed = [read for read in outside if not 0 < read.status < _BROKEN]
    return len(outside) - len(failed), len(outside), failed
