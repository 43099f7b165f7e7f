"""Names of files as diffs write them: with prefixes, times, quotes."""

import re

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
