"""Results on disk until the server has them.

Each result is one file in `spool/`, written and synced before the first attempt to send it, so neither a crash of the
agent nor of the server loses a boot. Artifacts wait beside it under their hash. What the server refuses for good moves
to `spool/refused/` with its reason: nothing is thrown away.
"""

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_agent.client import Client
from tidemark_agent.errors import FailingError, RefusedError, UnauthorizedError
from tidemark_agent.log import Log

_FORGOTTEN_SECONDS = 24 * 3600
_MOST_FAILURES = 5
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    tells whose result it is.
    """

    def __init__(self, directory: Path, *, owner: Path, log: Log) -> None:
        self._directory = directory
        self._blobs = directory / "artifacts"
        self._refused = directory / "refused"
        self._owner = str(owner.resolve())
        self._log = log
        self._troubled: set[Path] = set()
        for path in (self._directory, self._blobs, self._refused):
            path.mkdir(parents=True, exist_ok=True)

    def put(self, path: str, body: dict[str, Any], *, artifacts: tuple[str, ...] = ()) -> None:
        """Store a result durably; it leaves by `upload`."""
        record = {"owner": self._owner, "path": path, "body": body, "artifacts": list(artifacts)}
        # The time first: results leave in the order they were made.
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
        _write_durably(self._directory / name, json.dumps(record).encode())

    def put_artifact(self, source: Path) -> tuple[str, int]:
        """Keep a copy of `source` until its result is sent; its SHA-256 and size."""
        temporary = _temporary(self._blobs / source.name)
        try:
            shutil.copyfile(source, temporary)
            # The copy is hashed, for whatever happens to the source meanwhile.
            with temporary.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            target = self._blobs / sha256
            _settle(temporary, target)
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
            except FileNotFoundError:
                continue  # Another agent of this owner has just sent it.
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._refuse(file, f"unreadable: {error}")
                continue
            if owner == self._owner:
                yield item

    def upload(self, client: Client, *, patience: float) -> list[Sent]:
        """Send what waits; raises UnreachableError, with the rest still waiting, when the server is away.

        A result on which the server breaks each time, or which the token does not suffice for, is kept and the next
        one's turn comes: it must not stand in the way of all others for ever.
        """
        self._forget_leftovers()
        sent = []
        for item in self.items():
            failures = 1 if item.file in self._troubled else _MOST_FAILURES
            try:
                for sha256 in item.artifacts:
                    client.put_artifact(sha256, self._blobs / sha256, patience=patience, failures=failures)
                answer = client.post(item.path, item.body, patience=patience, failures=failures)
            except (FailingError, UnauthorizedError) as error:
                self._log.failure("result-kept", path=item.path, reason=str(error))
                self._troubled.add(item.file)
                continue
            except (RefusedError, FileNotFoundError) as error:
                self._log.failure("result-refused", path=item.path, reason=str(error))
                self._refuse(item.file, str(error))
                continue
            item.file.unlink(missing_ok=True)
            self._drop_artifacts(item)
            self._log.info("result-uploaded", path=item.path)
            sent.append(Sent(item.path, answer))
        return sent

    def has(self, prefix: str) -> bool:
        """Whether a result for a path that begins with `prefix` still waits."""
        return any(item.path.startswith(prefix) for item in self.items())

    def _refuse(self, file: Path, reason: str) -> None:
        _write_durably(self._refused / f"{file.stem}.reason", f"{reason}\n".encode())
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

    def _forget_leftovers(self) -> None:
        """Delete what agents that were killed left: half-written files, and artifacts whose result never came."""
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


def _temporary(target: Path) -> Path:
    return target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")


def _write_durably(target: Path, data: bytes) -> None:
    temporary = _temporary(target)
    try:
        temporary.write_bytes(data)
        _settle(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _settle(temporary: Path, target: Path) -> None:
    """Give a written file its name such that after a power cut it is there whole or not at all."""
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    temporary.replace(target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
