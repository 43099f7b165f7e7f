"""What a diff changes, read line by line as git reads it: git's own diffs and plain ones."""

import re
from dataclasses import dataclass, field
from functools import cached_property

_NO_FILE = "/dev/null"
# No system has longer paths; what goes on is not one.
_LONGEST = 4_096
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
# diff -u, Subversion and CVS write when or which version after the name.
_AFTER_NAME = re.compile(
    r"\t| (?=\d{4}-\d\d-\d\d[ T]\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z]|\((?:revision|working copy))"
)
# git's prefixes are one letter each: a/ b/, i/ w/, c/ i/, o/ w/, 1/ 2/.
_PREFIX = re.compile(r"[a-z0-9]/")


def unquoted(name: str) -> str:
    """`name` without git's quotes around unusual characters."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name[:_LONGEST]
    raw = _ESCAPE.sub(_unescaped, name[1:-1].encode("utf-8", "replace"))
    return raw.decode("utf-8", "replace").replace("\0", "")[:_LONGEST]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if len(code) == 3:  # noqa: PLR2004 (octal digits)
        return bytes([int(code, 8) & 0xFF])
    return _LETTERS.get(code, code)


def git_names(rest: str) -> tuple[str, str]:
    """Both names of a line `diff --git OLD NEW`; where blanks make it unclear, the halves that say the same."""
    # Two names of escapes of four characters each.
    rest = rest[: 8 * _LONGEST]
    if rest.startswith('"') or rest.endswith('"'):
        quoted = _QUOTED.match(rest)
        old = quoted[0] if quoted else rest.partition(' "')[0]
        return without_prefixes(unquoted(old), unquoted(rest[len(old) :].strip()))
    middle = len(rest) // 2
    old, new = rest[:middle], rest[middle + 1 :]
    if rest[middle : middle + 1] != " " or old.partition("/")[2] != new.partition("/")[2]:
        old, _, new = rest.partition(" b/") if " b/" in rest else rest.partition(" ")
        new = f"b/{new}" if " b/" in rest else new
    return without_prefixes(old[:_LONGEST], new[:_LONGEST])


def without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Two names of git without `a/` and `b/`; names written without prefixes stay whole."""
    if _PREFIX.match(old) and _PREFIX.match(new) and old[0] != new[0]:
        return old[2:], new[2:]
    return old, new


def marked_names(old_line: str, new_line: str) -> tuple[str | None, str | None]:
    """Names of the lines `--- OLD` and `+++ NEW`, None for /dev/null."""
    old, new = _name(old_line), _name(new_line)
    if _NO_FILE in {old, new}:
        return _alone(old), _alone(new)
    mine, theirs = without_prefixes(old, new)
    if mine == theirs:
        return mine, mine
    folder, _, rest = old.partition("/")
    other, _, same = new.partition("/")
    if rest and rest == same and folder != other:
        return rest, rest
    # file.c.orig and file.c: one file, whose name is the shorter one.
    one = old if new.startswith(old) else new if old.startswith(new) else ""
    return (one, one) if one else (mine, theirs)


def _name(line: str) -> str:
    after = _AFTER_NAME.search(line)
    return unquoted((line[: after.start()] if after else line).strip())


def _alone(name: str) -> str | None:
    if name == _NO_FILE:
        return None
    return name[2:] if _PREFIX.match(name) else name


# Some programs write three signs; git's diffs of merges have one range more, and are no patches.
_HEADER = re.compile(r"@@@? -\d{1,18}(?:,(\d{1,18}))? \+\d{1,18}(?:,(\d{1,18}))? @@")
_MARKS = ("", " ", "+", "-", "\\")


@dataclass(frozen=True)
class Hunk:
    """`end` is the number of the first line after it."""

    insertions: int
    deletions: int
    end: int


def is_hunk_header(line: str) -> bool:
    return line.startswith("@@") and _HEADER.match(line) is not None


def empty_side(header: str) -> str:
    """`old` or `new` if a hunk says that the file had, or has, no lines; else ""."""
    found = _HEADER.match(header)
    counts = (found[1], found[2]) if found else (None, None)
    return "old" if counts[0] == "0" else "new" if counts[1] == "0" else ""


def read_hunk(lines: list[str], at: int) -> Hunk:
    """Count the hunk whose header is line `at`; it ends early at a line that no hunk can hold, or with the text."""
    found = _HEADER.match(lines[at])
    if not found:
        return Hunk(0, 0, at + 1)
    old, new = int(found[1] or "1"), int(found[2] or "1")
    if lines[at].startswith("@@@"):
        # Who wrote this header did not count the lines either.
        return _uncounted(lines, at + 1)
    insertions = deletions = 0
    at += 1
    end = len(lines)
    while at < end and (old > 0 or new > 0):
        mark = lines[at][:1]
        if mark == "+":
            insertions += 1
            new -= 1
        elif mark == "-":
            deletions += 1
            old -= 1
        elif mark == " " or not mark:
            # Programs that cut blanks off the ends of lines leave an empty line of context without its blank.
            old -= 1
            new -= 1
        elif mark != "\\":
            break
        at += 1
    return Hunk(insertions, deletions, at)


def _uncounted(lines: list[str], at: int) -> Hunk:
    """A hunk to the last line that looks like one; the dashes before a signature do not."""
    insertions = deletions = 0
    for number in range(at, len(lines)):
        line = lines[number]
        if line[:1] not in _MARKS or line.rstrip() == "--":
            return Hunk(insertions, deletions, number)
        insertions += line.startswith("+")
        deletions += line.startswith("-")
    return Hunk(insertions, deletions, len(lines))


_GIT = "diff --git "
_STARTS = (_GIT, "--- ")
_INDEX = re.compile(r"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?\s*$")
# Lines that git writes between `diff --git` and the hunks.
_MODES = ("old mode ", "new mode ", "deleted file mode ", "new file mode ")
_OLD_NAMES = ("rename from ", "copy from ")
_NEW_NAMES = ("rename to ", "copy to ")
_SCORES = ("similarity index ", "dissimilarity index ")
_BINARY = ("GIT binary patch", "Binary files ")


@dataclass(frozen=True)
class FileChange:
    """One file of a diff. A path is None where there is no file: `old_path` of a new one, `new_path` of a deleted one.

    Blobs are the abbreviated hex ids of git's index line, modes its octal digits; "" where the diff does not say.
    """

    old_path: str | None
    new_path: str | None
    old_blob: str = ""
    new_blob: str = ""
    old_mode: str = ""
    new_mode: str = ""
    insertions: int = 0
    deletions: int = 0
    binary: bool = False


@dataclass(frozen=True)
class Diff:
    """All changed files in the order of the mail; false when there is none."""

    files: tuple[FileChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Old and new names of the files, sorted, each once."""
        return tuple(sorted({p for f in self.files for p in (f.old_path, f.new_path) if p}))

    @cached_property
    def insertions(self) -> int:
        return sum(f.insertions for f in self.files)

    @cached_property
    def deletions(self) -> int:
        return sum(f.deletions for f in self.files)


NO_DIFF = Diff()


def read_diff(text: str) -> Diff:
    """All that `text` changes; never raises, and takes time in proportion to the text, whatever its hunks claim."""
    if not may_hold_diff(text):
        return NO_DIFF
    found = _Reader(text.split("\n")).files()
    return Diff(tuple(found)) if found else NO_DIFF


def git_form(text: str) -> str:
    """The diff of `text` from its first file on, as git writes it: diffs of other programs get git's lines instead.

    So all that reads git's diffs only, such as `git patch-id`, says of them what it says of the commits made of them.
    """
    start = 0 if text.startswith(_GIT) else text.find(f"\n{_GIT}")
    if start >= 0 or not may_hold_diff(text):
        return text[start:] if start >= 0 else ""
    reader = _Reader(text.split("\n"))
    return "".join(draft.git_form(reader.lines) for draft in reader.drafts())


def may_hold_diff(text: str) -> bool:
    """A quick look: false where there is surely no diff."""
    return text.startswith(_STARTS) or "\n--- " in text or "\ndiff --git " in text


@dataclass
class _Draft:
    """A file while its lines are read. `real`: more than its first line was there; `open`: git's header goes on."""

    old_path: str | None
    new_path: str | None
    open: bool
    real: bool
    named: bool = False
    renamed: bool = False
    modes: dict[str, str] = field(default_factory=dict)
    blobs: tuple[str, str] = ("", "")
    insertions: int = 0
    deletions: int = 0
    binary: bool = False
    spans: list[tuple[int, int]] = field(default_factory=list)

    def git_form(self, lines: list[str]) -> str:
        """Of a file with hunks. Some programs know no way to say that there is no file: it had no lines then."""
        old, new = self.old_path, self.new_path
        if len(self.spans) == 1 and old and new:
            none = empty_side(lines[self.spans[0][0]])
            old, new = ("" if none == "old" else old), ("" if none == "new" else new)
        told = [f"diff --git a/{old or new} b/{new or old}"]
        told += [] if old and new else ["deleted file mode 100644" if old else "new file mode 100644"]
        told += [f"--- {f'a/{old}' if old else '/dev/null'}", f"+++ {f'b/{new}' if new else '/dev/null'}"]
        for start, end in self.spans:
            told += lines[start:end]
        return "\n".join(told) + "\n"

    def finished(self) -> FileChange:
        modes = self.modes
        return FileChange(
            old_path=None if "new file" in modes else self.old_path or None,
            new_path=None if "deleted file" in modes else self.new_path or None,
            old_blob=self.blobs[0],
            new_blob=self.blobs[1],
            old_mode=modes.get("old") or modes.get("deleted file") or modes.get("both", ""),
            new_mode=modes.get("new") or modes.get("new file") or modes.get("both", ""),
            insertions=self.insertions,
            deletions=self.deletions,
            binary=self.binary,
        )


class _Reader:
    """Walks over the lines once: `at` only grows."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def files(self) -> list[FileChange]:
        return [draft.finished() for draft in self.drafts()]

    def drafts(self) -> list[_Draft]:
        found: list[_Draft] = []
        lines, end = self.lines, len(self.lines)
        while self.at < end:
            line = lines[self.at]
            mark = line[:1]
            if mark == "d" and line.startswith(_GIT):
                old, new = git_names(line[len(_GIT) :].strip())
                found.append(_Draft(old, new, open=True, real=False))
            elif mark == "-" and self._names_follow(line):
                if not (found and found[-1].open):
                    found.append(_Draft(None, None, open=False, real=True))
                _take_names(found[-1], line, lines[self.at + 1])
                self.at += 1
            elif mark == "@" and found and found[-1].real and (found[-1].named or found[-1].open):
                self._take_hunk(found[-1])
                continue
            elif found and found[-1].open:
                _take_header(found[-1], line)
            self.at += 1
        return [draft for draft in found if draft.real]

    def _names_follow(self, line: str) -> bool:
        """Three lines make it a header: text of a mail may well begin with dashes."""
        following = self.lines[self.at + 1 : self.at + 3]
        return (
            line.startswith("--- ")
            and len(following) == 2  # noqa: PLR2004 (the name of the new file, and a hunk)
            and following[0].startswith("+++ ")
            and is_hunk_header(following[1])
        )

    def _take_hunk(self, draft: _Draft) -> None:
        hunk = read_hunk(self.lines, self.at)
        draft.insertions += hunk.insertions
        draft.deletions += hunk.deletions
        draft.open, draft.named = False, True
        draft.spans.append((self.at, hunk.end))
        self.at = hunk.end


def _take_names(draft: _Draft, old_line: str, new_line: str) -> None:
    # These lines say more than `diff --git`, where blanks can make it unclear, but less than git's lines on renames.
    if not draft.renamed:
        draft.old_path, draft.new_path = marked_names(old_line[4:], new_line[4:])
    draft.open, draft.real, draft.named = False, True, True


def _take_header(draft: _Draft, line: str) -> None:
    """Read one of git's lines between the first one and the hunks; any other line ends them."""
    if line.startswith(_MODES):
        kind, _, mode = line.rpartition(" mode ")
        draft.modes[kind] = mode.strip()[:6]
    elif found := _INDEX.match(line):
        draft.blobs = (found[1], found[2])
        if found[3]:
            draft.modes["both"] = found[3]
    elif line.startswith(_OLD_NAMES):
        draft.old_path, draft.renamed = unquoted(line.partition(" from ")[2]), True
    elif line.startswith(_NEW_NAMES):
        draft.new_path, draft.renamed = unquoted(line.partition(" to ")[2]), True
    elif line.startswith(_BINARY):
        draft.binary, draft.open = True, False
    elif not line.startswith(_SCORES):
        draft.open = False
        return
    draft.real = True
