"""What a patch mail may hold before git applies it. git itself reads it, so that nothing is seen differently."""

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import format_datetime
from pathlib import Path

from server.core.errors import DomainError
from server.core.programs.git import GitError, run_program
from server.core.programs.sandbox import Room
from server.sources.mail.diffs import Diff, read_diff
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.models import Message, Patch

# Code points that HFS+ ignores in names, so that they could hide in one.
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)
# Short names that NTFS makes for .git and .gitmodules.
_GIT = frozenset({".git", "git~1"})
_MODULES = frozenset({".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4"})
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
# A kernel's deepest file lies in twelve folders, and its longest path has 130 letters.
_DEEPEST = 64
_LONGEST = 1024


def objection(path: str) -> str:
    """Why `path` must not be touched, as the end of a sentence; "" if it may be."""
    if path.startswith("/"):
        return "which is outside the tree"
    for part in re.split(r"[/\\]", path):
        plain = _as_others_see(part)
        if not plain or plain in _GIT:
            return "which is outside the tree"
        if plain in _MODULES:
            return "which names submodules"
    if _CONTROL.search(path):
        return "whose name holds control characters"
    if path.count("/") > _DEEPEST or len(path.encode("utf-8", "surrogateescape")) > _LONGEST:
        return f"which lies in more than {_DEEPEST} folders or has more than {_LONGEST} letters"
    return ""


def _as_others_see(part: str) -> str:
    """One component as HFS+ or NTFS would take it; "" for one of dots and blanks alone, such as ".."."""
    return part.translate(_IGNORED).partition(":")[0].rstrip(" .").casefold()


def shown(path: str) -> str:
    """`path` for people: valid Unicode without control characters."""
    return _CONTROL.sub("?", path.encode("utf-8", "replace").decode())


def prefixes(path: str) -> list[str]:
    """All folders above `path`, and itself."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]


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
class GitReading:
    """What git takes for the commit's message, after its headers, and for the diff.

    `counts` are git's lines ADDED TAB REMOVED TAB PATH, of new and old names; `error` is empty if all went well.
    """

    message: bytes
    diff: bytes
    counts: tuple[bytes, ...]
    error: str


def read_mails(mails: dict[int, bytes], *, folder: Path, seconds: float) -> dict[int, GitReading]:
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


def _reading(folder: Path, number: int) -> GitReading:
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
    return GitReading(part("message"), part("diff"), tuple(counts), error)


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


# git leaves letters of a diff in the mail's charset, our parser reads them: that there are some is told from both.
_LETTERS = re.compile(r"[^\0-\x7f]+")


def reads_alike(reading: GitReading, mail: ParsedMail) -> bool:
    """Whether the message and diff that git found are the end of the body; lines before it are git's headers in it.

    Empty lines are not compared, for where two parts meet each reader has its own.
    """
    told = _lines((reading.message + b"\n" + reading.diff).decode("latin-1"))
    shown = _lines(mail.body)
    return len(told) <= len(shown) and told == shown[len(shown) - len(told) :]


def changes_more(reading: GitReading, mail: ParsedMail) -> bool:
    """Whether git counts more lines than the pages do. `reading` counts each of them twice, for old and new names."""
    counted = (number for line in reading.counts for number in line.split(b"\t")[:2])
    return sum(int(number) for number in counted if number.isdigit()) > 2 * (mail.diff.insertions + mail.diff.deletions)


def _lines(text: str) -> list[str]:
    # Inside base64 git leaves the CR of a line's end, our parser does not; nor NUL, which is refused later.
    lines = (line.rstrip("\r") for line in _LETTERS.sub("\ufffd", text.replace("\0", "")).split("\n"))
    return [line for line in lines if line.strip()]


# The bytes that git gets for one patch: the mail as it came, or written anew from what our own parser read.
#
# git reads every part of a mail, whatever its type and however it is encoded; pages, archives and our parser do not.

_MAIL_DATE = re.compile(rb"^date:[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE | re.IGNORECASE)
_ENVELOPE = re.compile(rb"\A>?From [^\n]*\n")
# Each run of returns is tried once, from its begin.
_LINE_END = re.compile(rb"(?<!\r)\r+\n")
_BREAKS = re.compile(r"[\0\r\n]+")
# Beside line ends, what would end a quoted name or an address.
_UNSAFE = re.compile(r"[\0\r\n\\\"<>]+")


def mail_as_sent(message: Message) -> bytes:
    """The mail with the date that the service believes: with one that git cannot read, git am would fail."""
    # All CRs before a line's end: git am takes one more off than git mailinfo, and both must see the same lines.
    raw = _ENVELOPE.sub(b"", _LINE_END.sub(b"\n", bytes(message.raw)))
    headers, blank, body = raw.partition(b"\n\n")
    return _date_line(message) + _MAIL_DATE.sub(b"", headers + b"\n").removesuffix(b"\n") + blank + body


def as_checked(message: Message) -> ParsedMail:
    return parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at)


def mail_anew(message: Message, mail: ParsedMail) -> bytes:
    """Sender, date, subject and text as our parser reads them, for mails in which git reads something else, or nothing.

    Such are diffs in attachments of odd types, or beside HTML or signatures, and lines that end in CR inside base64.
    """
    headers = (
        f'From: "{_UNSAFE.sub(" ", mail.sender_name)}" <{_UNSAFE.sub("", message.sender_address)}>\n'
        f"Subject: {_BREAKS.sub(' ', mail.subject)}\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n"
    )
    # The last line of a part ends where its boundary begins; to git it would be half a line.
    text = mail.body if mail.body.endswith("\n") else f"{mail.body}\n"
    return _date_line(message) + _LINE_END.sub(b"\n", (headers + text).encode("utf-8", "replace"))


def _date_line(message: Message) -> bytes:
    return f"Date: {format_datetime(message.sent_at or message.received_at)}\n".encode()


MAX_BYTES = 2 * 1024 * 1024
# A treewide series of several thousand patches is about as large.
MAX_SERIES_BYTES = 48 * 1024 * 1024
# Twice what the largest treewide changes of the kernel touch (one line in each file of a kind).
MAX_FILES = 20_000
# The kernel has some 5600. Each that is not there yet costs more than the line of the mail that names it.
MAX_FOLDERS = 10_000
_SHOWN = 300
# A line of the mail makes a file of up to 20 MB: copies alone could fill the disk.
MAX_COPIES = 100
_COPY = re.compile(rb"^copy from ", re.MULTILINE)
# No file of a tree has 100 million lines.
_MOST_DIGITS = 8
# Lines of a patch's body begin with a blank, + or -, so these can only be headers.
# git reads a mode as any octal number.
_ODD_MODE = re.compile(
    rb"^(?:(?:new|old) mode|(?:new|deleted) file mode|index \S+)[ \t]+\+?0*(12|16)[0-7]{4}\b", re.MULTILINE
)
_FILE = re.compile(rb"^diff --git ([^\n]*)$", re.MULTILINE)
_HUGE_HUNK = re.compile(rb"^@@+ [-+0-9, ]{0,200}?\d{%d}" % (_MOST_DIGITS + 1), re.MULTILINE)
_RETURNS = re.compile(rb"^(?:diff --git |--- |\+\+\+ )[^\n]*\r$", re.MULTILINE)
_KINDS = {b"12": "a symbolic link", b"16": "a submodule"}


class PatchRefusedError(DomainError):
    """A patch that must not be applied, whatever the base."""


@dataclass(frozen=True)
class ScreenedMail:
    """A mail as git gets it, the paths that it touches, old and new, and its diff, as git read it out of the mail.

    `label` says which patch it is.
    """

    content: bytes
    paths: frozenset[str]
    diff: Diff
    diff_text: str
    label: str


def screen_patches(
    patches: Sequence[Patch], *, folder: Path, seconds: float, foreign: bool = False
) -> list[ScreenedMail]:
    """Check patches in the empty `folder`; PatchRefusedError names patch and path.

    A mail in which git finds no usable diff, or another text than our own parser, is tried again as that reads it: what
    nobody was shown is not applied. git may take `seconds` for all, GitError `git-timeout` when it does not come to the
    end. `foreign` patches are those of other series, whose names are said as well.
    """
    labels = [_label(patch, foreign=foreign) for patch in patches]
    mails = {n: _sized(patch, labels[n]) for n, patch in enumerate(patches)}
    if sum(map(len, mails.values())) > MAX_SERIES_BYTES:
        raise _refused(f"the series is larger than {MAX_SERIES_BYTES // 2**20} MB")
    end = time.monotonic() + seconds
    readings = read_mails(mails, folder=folder / "as-sent", seconds=seconds)
    checked = [as_checked(patch.message) for patch in patches]
    unread = {
        n: mail_anew(patches[n].message, checked[n])
        for n, reading in readings.items()
        if not (_is_usable(reading) and checked[n].whole and reads_alike(reading, checked[n]))
    }
    anew = read_mails(unread, folder=folder / "anew", seconds=end - time.monotonic())
    for n, reading in anew.items():
        if _is_usable(reading):
            mails[n], readings[n] = unread[n], reading
    screened = [_screened(mails[n], readings[n], label) for n, label in enumerate(labels)]
    for n, mail in enumerate(screened):
        _refuse_unseen(patches[n], mail, readings[n], checked[n])
    if sum(len(m.paths) for m in screened) > MAX_FILES:
        raise _refused(f"the series touches more than {MAX_FILES} files")
    if len({part for m in screened for path in m.paths for part in prefixes(path)[:-1]}) > MAX_FOLDERS:
        raise _refused(f"the series touches files in more than {MAX_FOLDERS} folders")
    if sum(len(_COPY.findall(readings[n].diff)) for n in mails) > MAX_COPIES:
        raise _refused(f"the series copies more than {MAX_COPIES} files")
    return screened


def _label(patch: Patch, *, foreign: bool) -> str:
    own = f"patch {patch.index}/{patch.series.total}"
    return f"prerequisite {own} of <{patch.series.root_message_id}>" if foreign else own


def _sized(patch: Patch, label: str) -> bytes:
    content = mail_as_sent(patch.message)
    if len(content) > MAX_BYTES:
        raise _refused(f"{label} is larger than {MAX_BYTES // 2**20} MB")
    return content


def _is_usable(reading: GitReading) -> bool:
    """Not so when it failed, or when git's own lines end in CR, as all do when a program wrote CRLF inside base64."""
    return not reading.error and not _RETURNS.search(reading.diff)


def _screened(content: bytes, reading: GitReading, label: str) -> ScreenedMail:
    # Before git's own verdict, whose words about such a diff would hide what it is.
    _refuse_odd(reading.diff, label)
    if reading.error:
        raise _refused(f"{label} holds no usable diff: {reading.error}")
    paths = frozenset(_path(count, label) for count in reading.counts)
    for path in sorted(paths):
        if why := objection(path):
            raise _refused(f"{label} touches {shown(path)[:_SHOWN]}, {why}")
    text = reading.diff.decode("utf-8", "surrogateescape")
    return ScreenedMail(content, paths, read_diff(text), text, label)


def _refuse_unseen(patch: Patch, mail: ScreenedMail, reading: GitReading, checked: ParsedMail) -> None:
    """What git would change and our own parser did not see was shown to nobody, and its maintainers were not asked."""
    seen = set(patch.message.paths or checked.diff.paths)
    for path in sorted(mail.paths):
        if path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") not in seen:
            raise _refused(f"{mail.label} touches {shown(path)} as git reads it, but not as the mail was checked")
    if not reads_alike(reading, checked) or changes_more(reading, checked):
        raise _refused(f"{mail.label} holds other changes as git reads it than as the mail was checked")


def _refuse_odd(diff: bytes, label: str) -> None:
    if odd := _ODD_MODE.search(diff):
        raise _refused(f"{label} touches {_KINDS[odd[1]]}: {_file_at(diff, odd.start())}")
    if huge := _HUGE_HUNK.search(diff):
        raise _refused(f"{label} claims a hunk of more lines than any file has: {_file_at(diff, huge.start())}")
    nul = diff.find(b"\0")
    if nul >= 0:
        raise _refused(f"{label} holds NUL bytes: {_file_at(diff, nul)}")


def _path(count: bytes, label: str) -> str:
    added, _, name = count.split(b"\t", 2)
    path = name.decode("utf-8", "surrogateescape")
    if added == b"-":
        raise _refused(f"{label} changes the binary file {shown(path)}")
    return path


def _file_at(diff: bytes, position: int) -> str:
    """The names on the last `diff --git` line before `position`."""
    names = [found[1] for found in _FILE.finditer(diff, 0, position)]
    return shown(names[-1].decode(errors="replace")) if names else "?"


def _refused(message: str) -> PatchRefusedError:
    return PatchRefusedError("patch-refused", message.replace("\0", ""))
