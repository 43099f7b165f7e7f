"""Trees described in TOML: `[[tree]]` entries become rows, all of a file or none."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from server.core.errors import DomainError
from server.sources.models import Tree
from server.sources.trees.loading_values import KEYS, REQUIRED

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
