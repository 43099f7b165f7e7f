"""Which kernel runs, started by whom, and what a boot that failed left behind."""

import contextlib
import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.console import TAIL_BYTES
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.elf import build_id_of_notes
from tidemark_agent.system.text import clean_text, last_bytes

NONCE_WORD = "tidemark.boot="
# In the log of a kernel that hands over to the next: how it dies from here on is not the next one's doing.
LEAVING = "tidemark-agent leaves this kernel"
# x86 kernels keep 2048 bytes including the final NUL, and cut off the rest without a word.
_LONGEST = 2047
# BOOT_IMAGE and initrd are what the boot loader adds; the rest we set ourselves.
_OURS = ("BOOT_IMAGE=", "initrd=", "tidemark.", "panic=", "oops=")


def command_line(base: str, *, words: Iterable[str], nonce: str) -> str:
    """`base` without one-shot words, then `words`, then this boot's nonce; raises InfrastructureError if unusable."""
    kept = [word for word in split_words(base) if not word.startswith(_OURS)]
    added = [word for text in words for word in split_words(text)]
    line = " ".join([*kept, *added, f"{NONCE_WORD}{nonce}"])
    if len(line.encode()) > _LONGEST:
        raise InfrastructureError(f"the kernel's command line has {len(line.encode())} bytes, {_LONGEST} are possible")
    return line


def split_words(line: str) -> list[str]:
    """The words of a command line, in which double quotes keep blanks together as the kernel reads them."""
    if not line.isascii() or not all(character.isprintable() for character in line.strip("\n")):
        raise InfrastructureError(f"the kernel's command line has characters that it cannot have: {line[:200]!r}")
    words, word, quoted = [], "", False
    for character in line.strip():
        if character == '"':
            quoted = not quoted
        if character == " " and not quoted:
            words.append(word)
            word = ""
        else:
            word += character
    if quoted:
        raise InfrastructureError(f"the kernel's command line has an open quote: {line[:200]!r}")
    return [word for word in [*words, word] if word]


def nonce_of(line: str) -> str:
    """The nonce on a running kernel's command line, or "" if it was not started for a measurement."""
    found = [word.removeprefix(NONCE_WORD) for word in line.split() if word.startswith(NONCE_WORD)]
    return found[-1] if found else ""


_LARGEST_RECORD = 8192
_BOOT_ID = re.compile(r"[0-9a-f-]{1,36}")
_MOST_RECORDS = 100_000


@dataclass(frozen=True)
class RunningSystem:
    """The running kernel: its random boot id, its build id ("" if it shows none), and our nonce on its command line.

    A kernel under test may show anything: a boot id that is none is "" and a long build id is cut, or the service would
    refuse the result.
    """

    boot_id: str
    build_id: str
    nonce: str
    command_line: str

    @property
    def is_test_kernel(self) -> bool:
        return bool(self.nonce)


def running_system(root: Path = Path("/")) -> RunningSystem:
    """What runs now; raises InfrastructureError where /proc does not tell."""
    try:
        boot_id = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
        line = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise InfrastructureError(f"the running kernel cannot be told: {error}") from error
    boot_id = boot_id if _BOOT_ID.fullmatch(boot_id) else ""
    notes = b""
    with contextlib.suppress(OSError):
        notes = (root / "sys/kernel/notes").read_bytes()
    build_id = build_id_of_notes(notes)
    return RunningSystem(boot_id=boot_id, build_id=build_id, nonce=nonce_of(line), command_line=line)


def kernel_log_tail(device: Path = Path("/dev/kmsg")) -> str:
    """The end of the kernel's own log, without the machine words before each message; "" where it cannot be read."""
    lines: list[bytes] = []
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _LARGEST_RECORD)
            except BrokenPipeError:
                continue  # Messages were overwritten while we read; the next read goes on with the oldest left.
            if not record:
                break
            lines.append(record.partition(b";")[2].split(b"\n")[0])
    except OSError:
        pass  # BlockingIOError: all has been read.
    finally:
        os.close(descriptor)
    return last_bytes(clean_text(b"\n".join(lines)[-TAIL_BYTES:]), TAIL_BYTES)


_LIVE = "sys/fs/pstore"
# systemd-pstore moves the records here before anybody else can look.
_MOVED = "var/lib/systemd/pstore"
_NAMES = ("dmesg*", "console*")
_LARGEST_LEFT = 4 * 1024**2
_MOST_LEFT = 256
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
    newest = sorted(moved, key=_changed_at)[-_MOST_LEFT:]
    yield from live[:_MOST_LEFT]
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
            content = stream.read(_LARGEST_LEFT)
    except OSError:
        content = b""
    return f"{path.relative_to(root)} {hashlib.sha256(content).hexdigest()[:32]}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(_LARGEST_LEFT)
        if raw[:2] in _PACKED:
            raw = zlib.decompressobj(_PACKED[raw[:2]]).decompress(raw, _LARGEST_LEFT)
    except (OSError, zlib.error):
        return ""
    return clean_text(raw)
