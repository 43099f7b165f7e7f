"""What git itself reads in patch mails: all mails of a series in one run in the sandbox, nothing is applied."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from server.core.git import GitError, run_program
from server.core.sandbox import Room

# One shell for all mails: making the room costs more than git needs for a mail. The last line fails where no space is
# left, for git's words about a full disk would look as if the patch were to blame.
_SCRIPT = """\
for mail in *.mail; do
    n=${mail%.mail}
    git mailinfo --no-scissors --encoding=UTF-8 $n.message $n.diff <$mail >$n.info 2>$n.error; a=$?
    git apply --numstat -z $n.diff >$n.new 2>>$n.error; b=$?
    git apply --numstat -z -R $n.diff >$n.old 2>>$n.error; c=$?
    echo $a $b $c >$n.status || exit 1
done
head -c 1048576 /dev/zero >filled
"""
# Shells say so for a program that a signal ended; git's own worst is 128.
_SIGNALS = 129
_DATE = re.compile(rb"^Date: \S", re.MULTILINE)
_MOST_BYTES = 16 * 1024**2
_MOST_WORDS = 500


@dataclass(frozen=True)
class Reading:
    """What git takes for the commit's message, after its headers, and for the diff.

    `counts` are git's lines ADDED TAB REMOVED TAB PATH, of new and old names; `error` is empty if all went well.
    """

    message: bytes
    diff: bytes
    counts: tuple[bytes, ...]
    error: str


def read_mails(mails: dict[int, bytes], *, folder: Path, seconds: float) -> dict[int, Reading]:
    """Read each mail as git am would, in the empty `folder`; git may take `seconds` for all of them."""
    if not mails:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    for number, content in mails.items():
        (folder / f"{number}.mail").write_bytes(content)
    try:
        done = run_program("sh", "-c", _SCRIPT, cwd=folder, timeout=seconds, room=Room(writable=folder))
    except GitError as error:
        if error.code == "git-killed":
            raise GitError(error.code, f"the mails cannot be read: {error.message}", stderr=error.stderr) from error
        if error.code != "git-timeout":
            raise
        raise GitError(error.code, f"git took longer than {seconds:.0f} s to read the {len(mails)} mails") from error
    if done.code != 0:
        raise GitError("git-failed", f"the mails cannot be read: {done.stderr.strip()[:_MOST_WORDS] or done.code}")
    return {number: _reading(folder, number) for number in mails}


def _reading(folder: Path, number: int) -> Reading:
    def part(kind: str) -> bytes:
        return read_strange(folder / f"{number}.{kind}")

    status = part("status").split()
    if any(word.isdigit() and int(word) >= _SIGNALS for word in status):
        raise GitError("git-failed", f"git was ended by the system while it read patch {number + 1}")
    said = part("error").decode(errors="replace").replace("\0", "").strip()[:_MOST_WORDS]
    error = "" if status == [b"0", b"0", b"0"] else said or "git was ended while it read this mail"
    if not error and not _DATE.search(part("info")):
        # git am would take the time of day, and each try would make other commits.
        error = "its text begins with a line Date: without a date"
    counts = [line for kind in ("new", "old") for line in part(kind).split(b"\0") if line]
    return Reading(part("message"), part("diff"), tuple(counts), error)


def read_strange(path: Path) -> bytes:
    """The beginning of a file that strangers' input may have written; empty if it is none, or a link elsewhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read(_MOST_BYTES)
