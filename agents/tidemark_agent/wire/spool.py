"""Results that the server does not have yet: kept, sent later, put aside when refused, listed for people."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_agent.errors import FailingError, RefusedError, UnauthorizedError
from tidemark_agent.log import Log
from tidemark_agent.system.disk import Reserve, is_full, make_directory, settle, temporary_for, write_durably
from tidemark_agent.system.text import one_line
from tidemark_agent.wire.client import Client

_FIRST_SECONDS = 60.0
_LONGEST_SECONDS = 24 * 3600.0
_GROWTH = 4.0
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Delay:
    """How often an item failed, when by the wall clock its next turn is, and why it failed last."""

    failures: int
    next_at: float
    reason: str

    def is_over(self, now: float) -> bool:
        """Also when the clock was set back: a turn that is further away than the longest pause was never given."""
        return now >= self.next_at or self.next_at - now > _LONGEST_SECONDS


def delay_of(item: Path) -> Delay | None:
    """The delay of a spooled item, or None if it has none that can be read."""
    try:
        record = json.loads(_file(item).read_bytes())
        return Delay(int(record["failures"]), float(record["next_at"]), str(record["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def put_off(item: Path, reason: str, *, clock: Callable[[], float] = time.time) -> Delay:
    """Note another failure of `item`; its pauses grow to a day. On a full disk it is not noted, which does no harm."""
    before = delay_of(item)
    failures = 1 + (before.failures if before else 0)
    # The exponent is bounded too: powers of large numbers overflow.
    pause = min(_FIRST_SECONDS * _GROWTH ** min(failures - 1, 10), _LONGEST_SECONDS)
    delay = Delay(failures, clock() + pause, reason[:_LONGEST_REASON])
    try:
        write_durably(_file(item), json.dumps(vars(delay)).encode())
    except OSError:
        return delay
    return delay


def forget_delay(item: Path) -> None:
    _file(item).unlink(missing_ok=True)


def _file(item: Path) -> Path:
    return item.with_suffix(".later")


# Results on disk until the server has them.
#
# Each result is one file in `spool/`, written and synced before the first attempt to send it, so neither a crash of
# the agent nor of the server loses a boot. Artifacts wait beside it under their hash. What the server refuses for
# good moves to `spool/refused/` with its reason: nothing is thrown away.

_FORGOTTEN_SECONDS = 24 * 3600
_MOST_FAILURES = 5
# Several of the largest results that the server takes.
_RESERVE_BYTES = 4 * 1024 * 1024
_NOT_AUTHENTICATED = 401
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9/._-]{0,199}")
_SEQUENCE = re.compile(r"(\d{20})-")


@dataclass(frozen=True)
class Item:
    """One waiting result: where it is to be posted, what, and the artifacts that must be there first."""

    file: Path
    path: str
    body: dict[str, Any]
    artifacts: tuple[str, ...]


@dataclass(frozen=True)
class Sent:
    """A result that the server has taken, with its answer."""

    path: str
    answer: dict[str, Any]


class Spool:
    """The waiting results of one machine or builder.

    Several may share a state directory; each has its own token file, whose path (not its content, which is renewed)
    tells whose result it is. `clock` gives seconds since 1970; it only spaces the tries of results that fail.
    """

    def __init__(self, directory: Path, *, owner: Path, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._blobs = directory / "artifacts"
        self._refused = directory / "refused"
        self._owner = str(owner.resolve())
        self._log = log
        self._clock = clock
        self._reserve = Reserve(directory / "reserve", _RESERVE_BYTES)
        self._making: int | None = None
        for path in (self._directory, self._blobs, self._refused):
            make_directory(path)

    def trouble(self) -> str:
        """Why nothing more should be measured, or "": asked before each boot, it keeps room for what that gives."""
        return self._reserve.fill()

    def put(self, path: str, body: dict[str, Any], *, artifacts: tuple[str, ...] = ()) -> None:
        """Store a result durably; it leaves by `upload`. Raises OSError when not even the reserve gives it room."""
        record = {"owner": self._owner, "path": path, "body": body, "artifacts": list(artifacts)}
        target = self._directory / f"{self._next():020d}-{uuid.uuid4().hex[:8]}.json"
        data = json.dumps(record).encode()
        try:
            write_durably(target, data)
        except OSError as error:
            if not is_full(error) or not self._reserve.release():
                raise
            self._log.failure("disk-full", path=path, reason=str(error))
            write_durably(target, data)
        finally:
            self._made()

    def put_artifact(self, source: Path) -> tuple[str, int]:
        """Keep a copy of `source` until its result is sent; its SHA-256 and size."""
        self._begin_making()
        temporary = temporary_for(self._blobs / source.name)
        try:
            shutil.copyfile(source, temporary)
            # The copy is hashed, for whatever happens to the source meanwhile.
            with temporary.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            target = self._blobs / sha256
            settle(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return sha256, target.stat().st_size

    def items(self) -> Iterator[Item]:
        """What waits, oldest first; files that cannot be understood are put aside."""
        for file in sorted(self._directory.glob("*.json")):
            try:
                record = json.loads(file.read_bytes())
                owner = record["owner"]
                item = Item(file, str(record["path"]), dict(record["body"]), tuple(record["artifacts"]))
                if not all(_SHA256.fullmatch(name) for name in item.artifacts):
                    raise ValueError("artifact names are SHA-256")
                if not _PATH.fullmatch(item.path):
                    raise ValueError(f"path {item.path!r} is no call of the protocol")
            except FileNotFoundError:
                continue  # Another agent of this owner has just sent it.
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._refuse(file, f"unreadable: {error}")
                continue
            if owner == self._owner:
                yield item

    def upload(self, client: Client, *, patience: float, all_at_once: bool = False) -> list[Sent]:
        """Send what waits; raises UnreachableError, with the rest still waiting, when the server is away.

        A result on which the server breaks each time is kept, tried more and more rarely, and the next one's turn
        comes: it must not stand in the way of all others for ever. A token that is not taken stops all: it may be
        renewed. `all_at_once` tries those that were put off as well: a proxy in front of a server that was away
        breaks on every result, and what has not arrived before a claim is measured again.
        """
        self._forget_leftovers()
        sent = []
        for item in self.items():
            delay = delay_of(item.file)
            if delay is not None and not all_at_once and not delay.is_over(self._clock()):
                continue
            try:
                answer = self._send(item, client, patience, failures=1 if delay else _MOST_FAILURES)
            except (FailingError, UnauthorizedError) as error:
                self._log.failure("result-kept", path=item.path, reason=str(error))
                if isinstance(error, UnauthorizedError) and error.status == _NOT_AUTHENTICATED:
                    break
                if isinstance(error, FailingError):
                    put_off(item.file, str(error), clock=self._clock)
                continue
            except (RefusedError, FileNotFoundError) as error:
                self._log.failure("result-refused", path=item.path, reason=str(error))
                self._refuse(item.file, str(error))
                continue
            item.file.unlink(missing_ok=True)
            forget_delay(item.file)
            self._drop_artifacts(item)
            self._log.info("result-uploaded", path=item.path)
            sent.append(Sent(item.path, answer))
        return sent

    def has(self, prefix: str) -> bool:
        """Whether a result for a path that begins with `prefix` still waits."""
        return any(item.path.startswith(prefix) for item in self.items())

    def refusal(self, prefix: str) -> str:
        """Why the server refused a result for a path that begins with `prefix`; "" when it refused none."""
        for file in sorted(self._refused.glob("*.json")):
            try:
                path = str(json.loads(file.read_bytes())["path"])
                reason = file.with_suffix(".reason").read_text(encoding="utf-8", errors="replace").strip()
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if path.startswith(prefix):
                return f"the service refused the result for {path}: {reason}"
        return ""

    def _send(self, item: Item, client: Client, patience: float, failures: int) -> dict[str, Any]:
        for sha256 in item.artifacts:
            client.put_artifact(sha256, self._blobs / sha256, patience=patience, failures=failures)
        return client.post(item.path, item.body, patience=patience, failures=failures)

    def _next(self) -> int:
        """The time, or one more than the newest that waits: a clock that was set back does not change the order."""
        found = (_SEQUENCE.match(file.name) for file in self._directory.glob("*.json"))
        newest = max((int(match[1]) for match in found if match), default=0)
        # Twenty digits hold more than any clock; a file that somebody named must not overflow them.
        return min(max(time.time_ns(), newest + 1), 10**20 - 1)

    def _refuse(self, file: Path, reason: str) -> None:
        write_durably(self._refused / f"{file.stem}.reason", f"{reason}\n".encode())
        forget_delay(file)
        try:
            file.replace(self._refused / file.name)
        except FileNotFoundError:
            return

    def _drop_artifacts(self, item: Item) -> None:
        needed = self._needed_artifacts()
        for sha256 in item.artifacts:
            if sha256 not in needed:
                (self._blobs / sha256).unlink(missing_ok=True)

    def _needed_artifacts(self) -> set[str]:
        """What any owner's results refer to, those that were refused too: people may send them again."""
        needed: set[str] = set()
        for file in (*self._directory.glob("*.json"), *self._refused.glob("*.json")):
            try:
                needed.update(json.loads(file.read_bytes()).get("artifacts", []))
            except (OSError, ValueError, AttributeError, TypeError):
                continue
        return needed

    def _begin_making(self) -> None:
        """From the first artifact to its result nobody tidies up: by a clock that jumped, all looks old."""
        if self._making is None:
            self._making = os.open(self._directory / "making.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._making, fcntl.LOCK_SH)

    def _made(self) -> None:
        if self._making is not None:
            os.close(self._making)
            self._making = None

    def _forget_leftovers(self) -> None:
        """Delete what agents that were killed left: half-written files, and artifacts whose result never came."""
        with (self._directory / "making.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            oldest = time.time() - _FORGOTTEN_SECONDS
            files = [*self._directory.glob("*.partial"), *self._blobs.iterdir()]
            old = [file for file in files if _is_older(file, oldest)]
            needed = self._needed_artifacts() if old else set()
            for file in old:
                if file.name not in needed:
                    file.unlink(missing_ok=True)


def _is_older(file: Path, moment: float) -> bool:
    try:
        return file.stat().st_mtime < moment
    except FileNotFoundError:
        return False  # Another agent has just sent or renamed it.


_LONGEST_SHOWN = 160


def print_spool(directory: Path) -> int:
    """Print a line for each result below `directory` (a state directory's `spool`); the exit status is 0."""
    waiting = sorted(directory.glob("*.json"))
    refused = sorted((directory / "refused").glob("*.json"))
    print(f"{len(waiting)} waiting, {len(refused)} refused in {directory}")
    for file in waiting:
        print(f"waiting  {_about(file)}{_next_turn(file)}")
    for file in refused:
        print(f"refused  {_about(file)}: {_reason(file)}")
        print(f"         {file}")
    return 0


def _about(file: Path) -> str:
    """The path that the result goes to, and its age by the file's own time."""
    try:
        record = json.loads(file.read_bytes())
        path, age = one_line(str(record["path"])), time.time() - file.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return f"{one_line(file.name)} (cannot be read)"
    return f"{path}, {file.stat().st_size} bytes, {max(0.0, age) / 3600:.1f} h old"


def _next_turn(file: Path) -> str:
    delay = delay_of(file)
    if delay is None:
        return ""
    turn = "now" if delay.is_over(time.time()) else f"in {(delay.next_at - time.time()) / 60:.0f} min"
    return f"; failed {delay.failures} times, next try {turn}: {one_line(delay.reason, _LONGEST_SHOWN)}"


def _reason(file: Path) -> str:
    try:
        text = file.with_suffix(".reason").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no reason on record"
    return one_line(text, _LONGEST_SHOWN)
