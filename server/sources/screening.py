"""What a patch mail may hold before git applies it. git itself reads the mail, so that nothing is seen differently."""

import re
from dataclasses import dataclass
from email.utils import format_datetime
from pathlib import Path

from server.core.errors import DomainError
from server.core.git import run
from server.sources.models import Patch

MAX_BYTES = 2 * 1024 * 1024
# Lines of a patch's body begin with a blank, + or -, so these can only be headers.
_ODD_MODE = re.compile(rb"^(?:(?:new|old) mode|(?:new|deleted) file mode|index \S+) (120000|160000)", re.MULTILINE)
_DATE = re.compile(rb"^date:[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE | re.IGNORECASE)
_FILE = re.compile(rb"^diff --git ([^\n]*)$", re.MULTILINE)
_KINDS = {b"120000": "a symbolic link", b"160000": "a submodule"}


class PatchRefusedError(DomainError):
    """A patch that must not be applied, whatever the base."""


@dataclass(frozen=True)
class ScreenedMail:
    """A mail as git gets it, and the paths that it touches, old and new."""

    content: bytes
    paths: frozenset[str]


def screen_patch(patch: Patch, *, scratch: Path) -> ScreenedMail:
    """Check one patch in the empty folder `scratch`; PatchRefusedError names patch and path."""
    label = f"patch {patch.index}/{patch.series.total}"
    raw = bytes(patch.message.raw)
    if len(raw) > MAX_BYTES:
        raise _refused(f"{label} is larger than {MAX_BYTES // 2**20} MB")
    content = _with_date(raw, patch)
    diff = _diff(content, scratch, label)
    odd = _ODD_MODE.search(diff)
    if odd:
        files = [f[1] for f in _FILE.finditer(diff, 0, odd.start())]
        name = files[-1].decode(errors="replace") if files else "?"
        raise _refused(f"{label} touches {_KINDS[odd[1]]}: {name}")
    paths = frozenset(_touched(diff, scratch, label) | _touched(diff, scratch, label, "-R"))
    for path in sorted(paths):
        if _is_outside(path):
            raise _refused(f"{label} touches {_shown(path)}, which is outside the tree")
    return ScreenedMail(content, paths)


def _refused(message: str) -> PatchRefusedError:
    return PatchRefusedError("patch-refused", message.replace("\0", ""))


def _with_date(raw: bytes, patch: Patch) -> bytes:
    """The mail with the date that the service believes: with one that git cannot read, git am would fail."""
    date = format_datetime(patch.message.sent_at or patch.message.received_at)
    headers, blank, body = raw.replace(b"\r\n", b"\n").partition(b"\n\n")
    return f"Date: {date}\n".encode() + _DATE.sub(b"", headers + b"\n").removesuffix(b"\n") + blank + body


def _diff(content: bytes, scratch: Path, label: str) -> bytes:
    done = run("mailinfo", "--no-scissors", "--encoding=UTF-8", "message", "diff", cwd=scratch, stdin=content)
    if done.code != 0:
        raise _refused(f"{label} cannot be read: {done.stderr.strip()[:500]}")
    return (scratch / "diff").read_bytes()


def _touched(diff: bytes, scratch: Path, label: str, *direction: str) -> set[str]:
    """New names of the files in `diff`; with -R the old ones."""
    done = run("apply", "--numstat", "-z", *direction, "-", cwd=scratch, stdin=diff)
    if done.code != 0:
        raise _refused(f"{label} holds no usable diff: {done.stderr.strip()[:500]}")
    found = set()
    for line in filter(None, done.stdout.split(b"\0")):
        added, _, path = line.split(b"\t", 2)
        name = path.decode("utf-8", "surrogateescape")
        if added == b"-":
            raise _refused(f"{label} changes the binary file {_shown(name)}")
        found.add(name)
    return found


def _is_outside(path: str) -> bool:
    parts = path.split("/")
    return path.startswith("/") or any(p in {"", ".", ".."} or p.lower() == ".git" for p in parts)


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
