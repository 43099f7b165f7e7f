"""Proving that a checkout holds the tree of its commit: every file byte by byte, every mode, and nothing besides.

git's own comparison is not enough: it believes the times in its index, and it compares what its attributes make of a
file. Here each file is hashed as it lies there, as git hashes a blob: after the word "blob", its size and a NUL.
"""

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark_agent.errors import InfrastructureError, StoppedError

_PLAIN: Final = b"100644"
_PROGRAM: Final = b"100755"
_LINK: Final = b"120000"
_SUBMODULE: Final = b"160000"
_MODES: Final = frozenset({_PLAIN, _PROGRAM, _LINK, _SUBMODULE})
_GIT: Final = b".git"
_CHUNK = 1024**2
_SHA1_DIGITS = 40
_MOST_THREADS = 4
# Files that one thread hashes before it looks again whether it is to stop.
_AT_ONCE = 512


@dataclass(frozen=True)
class Entry:
    """What a tree says of one path: git's mode and the hash of the blob, or of a submodule's commit."""

    mode: bytes
    sha: bytes


def read_listing(listing: bytes) -> dict[bytes, Entry]:
    """Entries by path from `git ls-tree -r -z --full-tree`; InfrastructureError for anything else."""
    found: dict[bytes, Entry] = {}
    for record in listing.split(b"\0")[:-1]:
        head, _, path = record.partition(b"\t")
        words = head.split(b" ")
        if len(words) != 3 or words[0] not in _MODES or not path:  # noqa: PLR2004 (mode, kind, hash)
            raise InfrastructureError(f"git lists a tree in a way that is not understood: {record[:200]!r}")
        found[path] = Entry(mode=words[0], sha=words[2])
    if not found or not listing.endswith(b"\0"):
        raise InfrastructureError("git lists no whole tree")
    return found


def first_difference(source: Path, entries: dict[bytes, Entry], *, stop: threading.Event) -> str:
    """Where the files below `source` are not those of `entries`, in words; "" where they are. StoppedError at a stop.

    `.git` in `source` itself is not looked at: git does not let a tree hold that name.
    """
    root = os.fsencode(source)
    present, strange = _present(root, entries)
    if strange:
        return strange
    missing = next((path for path in entries if path not in present), None)
    if missing is not None:
        return f"{os.fsdecode(missing)} is missing"
    paths = [path for path, entry in entries.items() if entry.mode != _SUBMODULE]
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        parts = (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))
        found = pool.map(lambda part: _differing(root, part, entries, stop), parts)
        return next((difference for difference in found if difference), "")


def _present(root: bytes, entries: dict[bytes, Entry]) -> tuple[set[bytes], str]:
    """All paths below `root`, and the first that does not belong there or is of another kind, in words."""
    folders = {folder for path in entries for folder in _folders(path)}
    present: set[bytes] = set()
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root + b"/" + folder) as found:
            for item in found:
                path = folder + b"/" + item.name if folder else item.name
                if path == _GIT:
                    continue
                is_folder = item.is_dir(follow_symlinks=False)
                if is_folder and path in folders:
                    waiting.append(path)
                elif strange := _strange(item, entries.get(path), is_folder=is_folder):
                    return present, f"{os.fsdecode(path)} {strange}"
                else:
                    present.add(path)
    return present, ""


def _folders(path: bytes) -> Iterator[bytes]:
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]


def _strange(item: os.DirEntry[bytes], entry: Entry | None, *, is_folder: bool) -> str:
    """What is wrong with the kind and the mode of what lies there; "" when they are those of the tree."""
    if entry is None:
        return "is not in the tree"
    if entry.mode == _SUBMODULE:
        return "" if is_folder and _is_empty(item.path) else "is no empty folder, as that of a submodule is"
    mode = item.stat(follow_symlinks=False).st_mode
    if entry.mode == _LINK:
        return "" if stat.S_ISLNK(mode) else "is no link"
    if not stat.S_ISREG(mode):
        return "is no plain file"
    may_run = bool(mode & stat.S_IXUSR)
    return "" if may_run == (entry.mode == _PROGRAM) else "may be run" if may_run else "may not be run"


def _is_empty(folder: bytes) -> bool:
    with os.scandir(folder) as found:
        return next(found, None) is None


def _differing(root: bytes, paths: list[bytes], entries: dict[bytes, Entry], stop: threading.Event) -> str:
    if stop.is_set():
        raise StoppedError("looking at the checkout was ended")
    for path in paths:
        entry = entries[path]
        if _hash_of(root + b"/" + path, entry) != entry.sha.decode("ascii"):
            return f"{os.fsdecode(path)} has other content"
    return ""


def _hash_of(path: bytes, entry: Entry) -> str:
    kind = "sha1" if len(entry.sha) == _SHA1_DIGITS else "sha256"
    if entry.mode == _LINK:
        # Names of a tree are bytes, which pathlib does not take.
        target = os.readlink(path)  # noqa: PTH115
        return hashlib.new(kind, b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        digest = hashlib.new(kind, b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
