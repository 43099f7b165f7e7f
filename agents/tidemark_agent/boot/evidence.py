"""What a dead kernel left behind in memory that outlives a reset (pstore), or nothing."""

import contextlib
import hashlib
import re
import shutil
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.console import TAIL_BYTES
from tidemark_agent.boot.words import LEAVING, NONCE_WORD
from tidemark_agent.text import clean_text, last_bytes

_LIVE = "sys/fs/pstore"
# systemd-pstore moves the records here before anybody else can look.
_MOVED = "var/lib/systemd/pstore"
_NAMES = ("dmesg*", "console*")
_LARGEST_RECORD = 4 * 1024**2
_MOST_RECORDS = 256
_LONGEST_REASON = 300
_PANIC = re.compile(r"Kernel panic - not syncing.*")
_COMMAND_LINE = re.compile(r"(?:Kernel c|C)ommand line: .*")
_PACKED = {b"\x1f\x8b": zlib.MAX_WBITS | 32, b"\x78\x9c": zlib.MAX_WBITS, b"\x78\x01": zlib.MAX_WBITS}


@dataclass(frozen=True)
class Evidence:
    """`panic` is the kernel's own last word, or "" if it had none; `tail` the end of what it logged."""

    panic: str = ""
    tail: str = ""


def collect_evidence(root: Path, nonce: str, known: Collection[str] = ()) -> Evidence:
    """What the boot with this nonce left. Records of other boots, which say so by their command line, do not count.

    Nor does that of a kernel which died on its way into this boot: a long log has lost its command line by then.

    `known` is what `forget_evidence` returned before that boot: a record with new content is a new one.
    """
    dumps: list[str] = []
    consoles: list[str] = []
    for path in _records(root):
        if _identity(root, path) in known:
            continue
        text = _text(path)
        command_line = _COMMAND_LINE.search(text)
        if command_line and f"{NONCE_WORD}{nonce}" not in command_line[0]:
            continue
        if LEAVING in text:
            continue
        (dumps if path.name.startswith("dmesg") else consoles).append(text)
    for text in (*dumps, *consoles):
        panic = _PANIC.search(text)
        if panic:
            return Evidence(panic[0].strip()[:_LONGEST_REASON], last_bytes(text, TAIL_BYTES))
    return Evidence(tail=last_bytes("\n".join((*consoles, *dumps)), TAIL_BYTES))


def forget_evidence(root: Path, kept: Path) -> list[str]:
    """Move the records of boots that are over to `kept`, so that none can be taken for the next boot's.

    Those that systemd has moved are the operator's: they stay, and what tells them from others is returned. Their names
    do not: systemd gives all records of ramoops the same few.
    """
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    left = []
    for path in _records(root):
        if path.is_relative_to(root / _LIVE):
            with contextlib.suppress(OSError):
                shutil.copyfile(path, kept / path.name)
            with contextlib.suppress(OSError):
                path.unlink()
        if path.exists():
            left.append(_identity(root, path))
    return left


def _records(root: Path) -> Iterator[Path]:
    """Live ones first, then the newest of those that were moved, which may go back for years."""
    live, moved = (
        [path for name in _NAMES for path in sorted((root / place).rglob(name)) if _is_record(path)]
        for place in (_LIVE, _MOVED)
    )
    newest = sorted(moved, key=_changed_at)[-_MOST_RECORDS:]
    yield from live[:_MOST_RECORDS]
    yield from newest


def _is_record(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _identity(root: Path, path: Path) -> str:
    """Where it is and what it holds."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_RECORD)
    except OSError:
        content = b""
    return f"{path.relative_to(root)} {hashlib.sha256(content).hexdigest()[:32]}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(_LARGEST_RECORD)
        if raw[:2] in _PACKED:
            raw = zlib.decompressobj(_PACKED[raw[:2]]).decompress(raw, _LARGEST_RECORD)
    except (OSError, zlib.error):
        return ""
    return clean_text(raw)
