"""Matching names against patterns with wildcards, in linear space and without a regular expression's traps."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Sign = TypeVar("_Sign")
_Part = TypeVar("_Part")


def matches(
    pattern: Sequence[_Sign],
    parts: Sequence[_Part],
    *,
    is_star: Callable[[_Sign], bool],
    fits: Callable[[_Sign, _Part], bool],
) -> bool:
    """Whether `pattern` covers all of `parts`; a star covers any number of them, every other sign one that it fits.

    Only the last star passed is ever stretched, so that the work is at most len(pattern) * len(parts).
    """
    sign = part = 0
    star, stretched = -1, 0
    while part < len(parts):
        if sign < len(pattern) and is_star(pattern[sign]):
            star, stretched = sign, part
            sign += 1
        elif sign < len(pattern) and fits(pattern[sign], parts[part]):
            sign, part = sign + 1, part + 1
        elif star >= 0:
            stretched += 1
            sign, part = star + 1, stretched
        else:
            return False
    return all(is_star(rest) for rest in pattern[sign:])


def matches_text(pattern: str, text: str) -> bool:
    """`*` covers any characters, `?` one; nothing else is special."""
    return matches(pattern, text, is_star=lambda sign: sign == "*", fits=lambda sign, char: sign in {"?", char})


def matches_path(pattern: str, path: str) -> bool:
    """A pattern as in .gitignore: it covers files and all that lies below a directory.

    `*` and `?` stay within one name, `**` covers any number of directories. A pattern without a slash but at its end
    fits at any depth, others begin at the root.
    """
    names = [name for name in pattern.split("/") if name]
    if "/" not in pattern.rstrip("/"):
        names.insert(0, "**")
    return pattern.strip("/") != "" and matches(
        [*names, "**"], path.split("/"), is_star=lambda name: name == "**", fits=matches_text
    )
