"""Files: written whole or not at all, room kept free, trees removed, locks held."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tidemark_agent.errors import InfrastructureError, StoppedError

# Files: the agent's own, written so that a power cut cannot halve them, and those that strangers' programs leave.
#
# Whatever lies where such a program may write is opened by `open_strange` and by nothing else.

_NEARLY_FULL = 256 * 1024**2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What the kernel says of links, of what is no directory where there should be one, and of sockets.
_NOT_PLAIN = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# Neither a link to a secret is followed, nor does a pipe without a writer keep the agent for ever.
_STRANGE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class StrangeFileError(OSError):
    """In place of a plain file there is something else: a link, a pipe, a directory."""


def is_nearly_full(directory: Path) -> bool:
    """Whether the disk is to blame: programs that meet a full one rarely say so, or end as if all were well."""
    return shutil.disk_usage(directory).free < _NEARLY_FULL


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def make_directory(path: Path) -> None:
    """Make `path`, and those above it that are missing, such that a power cut does not take them away again."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def temporary_for(target: Path) -> Path:
    """A new name beside `target`, on the same file system."""
    return target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")


def write_durably(target: Path, data: bytes) -> None:
    temporary = temporary_for(target)
    try:
        temporary.write_bytes(data)
        settle(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def settle(temporary: Path, target: Path) -> None:
    """Give a written file its name such that after a power cut it is there whole or not at all."""
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    temporary.replace(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_strange(root: Path, name: str) -> BinaryIO:
    """The plain file `name` below `root`, for reading, where strangers' programs may have put anything.

    `root` itself is ours; no link below it is followed, for it could lead to a secret. StrangeFileError for all that is
    no plain file, other OSErrors as they come. How much is read is for the caller to limit.
    """
    return open(_open_below(root, name, os.O_RDONLY), "rb")


def read_strange(root: Path, name: str, most: int) -> bytes:
    """The first `most` bytes of a file that `open_strange` opens."""
    with open_strange(root, name) as file:
        return file.read(most)


def open_to_write(path: Path, flags: int) -> int:
    """A descriptor of the plain file `path`, which is made if it is missing, for writing where strangers may write."""
    return _open_below(path.parent, path.name, flags | os.O_CREAT)


def _open_below(root: Path, name: str, flags: int) -> int:
    *folders, last = PurePosixPath(name).parts
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(last, flags | _STRANGE, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise StrangeFileError(error.errno, "no plain file", name) from error
        raise
    finally:
        os.close(folder)
    # Before it becomes a Python file, which a directory cannot.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StrangeFileError(errno.EINVAL, "no plain file", name)
    return descriptor


class Reserve:
    """Some of the disk kept for the result that is made just when the disk gets full."""

    def __init__(self, file: Path, size: int) -> None:
        self._file = file
        self._size = size

    def fill(self) -> str:
        """Take the room if it is not held; why that failed, or ""."""
        try:
            if self._file.is_file() and self._file.stat().st_size == self._size:
                return ""
            with self._file.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, self._size)
        except OSError as error:
            self._file.unlink(missing_ok=True)
            return f"no disk space left: {error.strerror or error}" if is_full(error) else f"{error}"
        return ""

    def release(self) -> bool:
        """Give the room back; False if none was held."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True


# Well below the 4096 bytes that a path may have.
_LONGEST_PATH = 2000


def remove_tree(root: Path) -> None:
    """Delete `root` and all below it, as far as that can be done; links are not followed, and nothing recurses.

    What lies too deep is moved up beside `root` first, under its name with a number behind. What a killed agent leaves
    there is found by whoever looks for names that begin like `root`.
    """
    if root.is_symlink():
        root.unlink()
        return
    waiting, found = [root], []
    while waiting:
        directory = waiting.pop()
        found.append(directory)
        _open(directory)
        for entry in _entries(directory):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif len(entry.path) < _LONGEST_PATH:
                waiting.append(path)
            else:
                waiting += _moved_up(path, root.with_name(f"{root.name}.{os.getpid()}.{len(found)}"))
    for directory in reversed(found):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _moved_up(path: Path, target: Path) -> list[Path]:
    # A directory can be moved only by who may write into it.
    _open(path)
    try:
        return [path.rename(target)]
    except OSError:
        return []


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _open(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.chmod(stat.S_IRWXU)


_POLL_SECONDS = 0.5
_PROBE_SECONDS = 0.05
# No agent waits longer to be alone, and what it then runs is one step.
_LONGEST_ALONE = 2 * 3600.0
# What was said of those who are no agents.
_strangers: list[str] = []
# Every host has these for all of its users: a full disk cannot keep them from being made, nor a user from being locked.
_HOST, _QUEUE = Path("/run"), Path("/dev/shm")  # noqa: S108 (nothing is written there)


def try_lock(path: Path, *, patience: float = 0.0) -> int | None:
    """An open descriptor that holds the lock, or None if another process holds it for all of `patience` (seconds).

    The file then holds this process's id: the dispatcher that started the agent finds there whom to stop.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while not _is_ours(descriptor):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return None
        time.sleep(_PROBE_SECONDS)
    # On a full disk nobody can read who holds it, but held it is: settings of the machine must be put back even then.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_ours(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def held_lock(path: Path, *, stop: threading.Event) -> Iterator[None]:
    """Wait for the lock and hold it; raises StoppedError when `stop` is set first."""
    while (descriptor := try_lock(path)) is None:
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(f"stopped while waiting for {path.name}")
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def beside_others(*, stop: threading.Event, patience: float = _LONGEST_ALONE) -> Iterator[None]:
    """Share this host with all agents on it, as soon as none of them has it, or waits for it, alone.

    Whoever keeps it for longer than `patience` (seconds) is no agent: every user of the host may lock these folders.
    This process waits for him once.
    """
    deadline = time.monotonic() + (0 if _strangers else patience)
    with contextlib.ExitStack() as held:
        try:
            with _flock(_QUEUE, fcntl.LOCK_SH, stop, deadline):
                held.enter_context(_flock(_HOST, fcntl.LOCK_SH, stop, deadline))
        except InfrastructureError as error:
            _strangers.append(str(error))
        yield


@contextlib.contextmanager
def alone_on_host(*, stop: threading.Event, patience: float) -> Iterator[None]:
    """Wait until nobody shares this host, and let nobody in; raises InfrastructureError after `patience` (seconds)."""
    deadline = time.monotonic() + patience
    with _flock(_QUEUE, fcntl.LOCK_EX, stop, deadline), _flock(_HOST, fcntl.LOCK_EX, stop, deadline):
        yield


@contextlib.contextmanager
def _flock(path: Path, how: int, stop: threading.Event, deadline: float) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while not _is_ours(descriptor, how):
            if time.monotonic() >= deadline:
                raise InfrastructureError("other builds did not leave this host to one that must be alone on it")
            if stop.wait(_POLL_SECONDS):
                raise StoppedError("stopped while waiting for other builds of this host")
        yield
    finally:
        os.close(descriptor)
