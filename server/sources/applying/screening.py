"""What a patch mail may hold before git applies it. git itself reads the mail, so that nothing is seen differently."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from server.core.errors import DomainError
from server.sources.applying.screening_alike import changes_more, reads_alike
from server.sources.applying.screening_git import Reading, read_mails
from server.sources.applying.screening_mails import as_checked, mail_anew, mail_as_sent
from server.sources.applying.screening_paths import objection, prefixes, shown
from server.sources.mail.diffs import Diff, read_diff
from server.sources.mail.parser import ParsedMail
from server.sources.models import Patch

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


def _is_usable(reading: Reading) -> bool:
    """Not so when it failed, or when git's own lines end in CR, as all do when a program wrote CRLF inside base64."""
    return not reading.error and not _RETURNS.search(reading.diff)


def _screened(content: bytes, reading: Reading, label: str) -> ScreenedMail:
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


def _refuse_unseen(patch: Patch, mail: ScreenedMail, reading: Reading, checked: ParsedMail) -> None:
    """What git would change and our own parser did not see was shown to nobody, and its maintainers were not asked."""
    seen = set(patch.paths or checked.diff.paths)
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
