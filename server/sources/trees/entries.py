"""Trees described in TOML: `[[tree]]` entries become rows, all of a file or none."""

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import transaction

from server.core.errors import DomainError
from server.sources.models import Tree
from server.sources.trees.fetch import is_glob, is_usable

_SCHEMES = ("https", "http", "git", "file")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_GLOB_CHARACTERS = re.compile(r"[*?!\[\]]")
# More often would bother a public server; less often than once a day is no watching.
_POLL_SECONDS = (10, 86_400)
_PRIORITY = (-1000, 1000)
_MOST_HEADS = 1000


@dataclass(frozen=True)
class TreeKey:
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
    "name": TreeKey("name", _text),
    "url": TreeKey("url", _url),
    "branches": TreeKey("branch_patterns", _patterns),
    "tags": TreeKey("tag_patterns", _words(_pattern)),
    "rebasing": TreeKey("rebasing", _flag),
    "poll_seconds": TreeKey("poll_seconds", _number(*_POLL_SECONDS)),
    "priority": TreeKey("priority", _number(*_PRIORITY)),
    "uarchs": TreeKey("uarchs", _words(_text)),
    "benchmarks": TreeKey("benchmarks", _words(_text)),
    "reference": TreeKey("reference", _reference),
    "heads_per_day": TreeKey("heads_per_day", _number(0, _MOST_HEADS)),
    "merges_by": TreeKey("merges_by", _words(_address)),
    "subject_tags": TreeKey("subject_tags", _words(_text)),
    "addresses": TreeKey("addresses", _words(_address)),
    "paths": TreeKey("paths", _words(_path)),
    "moderated": TreeKey("moderated", _flag),
}


# Facts of polling and the switch in the admin site are not the file's to set.
_FIELDS = tuple(key.field for key in KEYS.values())


@dataclass(frozen=True)
class Loaded:
    """Names of the trees that were made, and of those that were there and now are as the file says."""

    created: tuple[str, ...]
    updated: tuple[str, ...]


def load_trees(path: Path) -> Loaded:
    """Create or update the trees that `path` describes; those it does not name stay as they are.

    A key that an entry leaves out has its default value. Raises DomainError `bad-trees` that names entry and key at
    fault; then nothing is changed.
    """
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DomainError("bad-trees", f"{path}: {error}") from error
    entries = description.pop("tree", [])
    if description:
        raise DomainError("bad-trees", f"{path}: unknown section {min(description)}")
    if not isinstance(entries, list):
        raise DomainError("bad-trees", f"{path}: trees are written as [[tree]]")
    trees = []
    for number, entry in enumerate(entries, start=1):
        try:
            trees.append(read_tree(entry))
        except ValueError as error:
            name = entry.get("name", "without a name") if isinstance(entry, dict) else "no table"
            raise DomainError("bad-trees", f"{path}: [[tree]] number {number} ({name}): {error}") from error
    _refuse_twins(path, trees)
    with transaction.atomic():
        created = {tree.name: save_tree(tree) for tree in trees}
    return Loaded(
        tuple(name for name, new in created.items() if new), tuple(name for name, new in created.items() if not new)
    )


def _refuse_twins(path: Path, trees: Iterable[Tree]) -> None:
    seen = set()
    for number, tree in enumerate(trees, start=1):
        if tree.name in seen:
            raise DomainError("bad-trees", f"{path}: [[tree]] number {number} ({tree.name}): named twice")
        seen.add(tree.name)


def read_tree(entry: object) -> Tree:
    """The tree that one entry describes, not saved. Raises ValueError that names the key at fault."""
    if not isinstance(entry, dict):
        raise ValueError("is no table of keys and values")  # noqa: TRY004 (of a file, not of a program)
    for key in REQUIRED:
        if key not in entry:
            raise ValueError(f"{key} is missing")
    tree = Tree()
    for key, value in entry.items():
        if key not in KEYS:
            raise ValueError(f"unknown key {key}")
        try:
            setattr(tree, KEYS[key].field, KEYS[key].read(value))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    _check(tree)
    return tree


def _check(tree: Tree) -> None:
    try:
        tree.clean_fields()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        key = next((name for name, key in KEYS.items() if key.field == field), field)
        raise ValueError(f"{key}: {messages[0]}") from error


def save_tree(tree: Tree) -> bool:
    """Store what was read, over the row of that name if there is one; returns whether it is new."""
    row = Tree.objects.select_for_update().filter(name=tree.name).first()
    if row is None:
        tree.save()
        return True
    values: dict[str, Any] = {field: getattr(tree, field) for field in _FIELDS}
    # An update of these columns only: a poll at the same moment writes others.
    Tree.objects.filter(pk=row.pk).update(**values)
    return False
