"""The keys of a `[[tree]]` entry: which column each fills, and what it may hold."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from server.sources.trees.refnames import is_glob, is_usable

_SCHEMES = ("https", "http", "git", "file")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_GLOB_CHARACTERS = re.compile(r"[*?!\[\]]")
# More often would bother a public server; less often than once a day is no watching.
_POLL_SECONDS = (10, 86_400)
_PRIORITY = (-1000, 1000)
_MOST_HEADS = 1000


@dataclass(frozen=True)
class Key:
    """`read` turns the value in the file into that of the column, or raises ValueError with the reason."""

    field: str
    read: Callable[[object], object]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text in quotes")
    if not value.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return value.strip()


def _url(value: object) -> str:
    url = _text(value)
    if url.startswith("/"):
        return url
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"must begin with {', '.join(f'{s}://' for s in _SCHEMES)} or /")
    if parts.scheme != "file" and not parts.hostname:
        raise ValueError("names no host")
    return url


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 (of a file, not of a program)
    return value


def _number(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return read


def _words(read: Callable[[object], str]) -> Callable[[object], list[str]]:
    def read_all(value: object) -> list[str]:
        if not isinstance(value, list):
            raise ValueError('must be a list: ["...", "..."]')  # noqa: TRY004 (of a file, not of a program)
        return list(dict.fromkeys(read(word) for word in value))

    return read_all


def _pattern(value: object) -> str:
    pattern = _text(value)
    if pattern.startswith("refs/"):
        raise ValueError(f"{pattern}: write it without refs/heads/ or refs/tags/")
    if not is_usable(_GLOB_CHARACTERS.sub("x", pattern)):
        kind = "pattern" if is_glob(pattern) else "name"
        raise ValueError(f"{pattern} is no usable {kind}: letters, digits and . _ + @ - / only")
    return pattern


def _patterns(value: object) -> list[str]:
    patterns = _words(_pattern)(value)
    if not patterns:
        raise ValueError("names nothing to watch")
    return patterns


def _reference(value: object) -> str:
    reference = _text(value)
    if not is_usable(reference):
        raise ValueError(f"{reference} is no usable name of a tag, and no commit")
    return reference


def _address(value: object) -> str:
    address = _text(value).lower()
    if not _ADDRESS.fullmatch(address):
        raise ValueError(f"{address} is no mail address")
    return address


def _path(value: object) -> str:
    path = _text(value)
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path} must be a path inside the tree")
    return path


REQUIRED = ("name", "url", "branches")
KEYS = {
    "name": Key("name", _text),
    "url": Key("url", _url),
    "branches": Key("branch_patterns", _patterns),
    "tags": Key("tag_patterns", _words(_pattern)),
    "rebasing": Key("rebasing", _flag),
    "poll_seconds": Key("poll_seconds", _number(*_POLL_SECONDS)),
    "priority": Key("priority", _number(*_PRIORITY)),
    "uarchs": Key("uarchs", _words(_text)),
    "benchmarks": Key("benchmarks", _words(_text)),
    "reference": Key("reference", _reference),
    "heads_per_day": Key("heads_per_day", _number(0, _MOST_HEADS)),
    "merges_by": Key("merges_by", _words(_address)),
    "subject_tags": Key("subject_tags", _words(_text)),
    "addresses": Key("addresses", _words(_address)),
    "paths": Key("paths", _words(_path)),
}
