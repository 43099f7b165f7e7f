"""Fragments, configurations and toolchains described in TOML: those that are shipped, and a site's own."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from django.core.exceptions import ValidationError
from django.db import models, transaction

from server.builds.loading_entries import DEFAULTS, FIELDS, Fields
from server.builds.models import ConfigFragment, KernelConfig, Toolchain
from server.builds.recipes import contradictions
from server.core.errors import DomainError

SHIPPED = Path(__file__).resolve().parent / "data" / "builds.toml"
_MODELS: Mapping[str, type[models.Model]] = {
    "fragment": ConfigFragment,
    "config": KernelConfig,
    "toolchain": Toolchain,
}
SECTIONS = tuple(_MODELS)


@dataclass
class LoadedBuilds:
    """Names by what became of them, and what people should know: a symbol that a later fragment overrules."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def load_builds(path: Path = SHIPPED, *, replace: bool = False) -> LoadedBuilds:
    """Create what `path` describes. A row that is there stays unless `replace`: an operator may have changed it.

    Raises DomainError `bad-builds` that names file and entry at fault; then nothing is changed.
    """
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DomainError("bad-builds", f"{path}: {error}") from error
    if unknown := set(description) - set(SECTIONS):
        raise DomainError("bad-builds", f"{path}: unknown section {min(unknown)}")
    loaded = LoadedBuilds()
    with transaction.atomic():
        for section in SECTIONS:
            for number, entry in enumerate(description.get(section, []), start=1):
                try:
                    load_entry(section, entry, path.parent, loaded, replace=replace)
                except ValueError as error:
                    name = entry.get("name", "without a name") if isinstance(entry, dict) else "no table"
                    where = f"{path}: [[{section}]] number {number} ({name})"
                    raise DomainError("bad-builds", f"{where}: {error}") from error
    return loaded


def load_entry(section: str, entry: object, folder: Path, loaded: LoadedBuilds, *, replace: bool) -> None:
    """Store one entry and note in `loaded` what became of it. Raises ValueError that says what is wrong with it.

    Files that it names are looked for in `folder`. Runs in the caller's transaction.
    """
    fields = read_entry(section, entry, folder)
    name = str(fields.pop("name"))
    model = _MODELS[section]
    row = model._default_manager.filter(name=name).first()
    told = f"{section} {name}"
    if row is None:
        row = model(name=name)
        loaded.created.append(told)
    elif not replace or all(getattr(row, key) == value for key, value in fields.items()):
        loaded.kept.append(told)
        return
    else:
        loaded.updated.append(told)
    _save(row, fields)
    loaded.remarks += _remarks(row)


def read_entry(section: str, entry: object, folder: Path) -> Fields:
    """Column to value; a key that is left out has its default. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError("is no table of keys and values")  # noqa: TRY004 (of a file, not of a program)
    known = FIELDS[section]
    if unknown := set(entry) - set(known):
        raise ValueError(f"unknown key {min(unknown)}")
    if "name" not in entry:
        raise ValueError("name is missing")
    fields: Fields = dict(DEFAULTS[section])
    for key, reader in known.items():
        try:
            if key in entry:
                fields |= reader.read(entry[key], folder)
            elif reader.required and not set(reader.instead) & set(entry):
                raise ValueError("is missing")
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{key}: {error}") from error
    return fields


def _save(row: models.Model, fields: Fields) -> None:
    for column, value in fields.items():
        setattr(row, column, value)
    try:
        row.full_clean()
    except ValidationError as error:
        column, messages = next(iter(error.message_dict.items()))
        raise ValueError(f"{column}: {messages[0]}") from error
    row.save()


def _remarks(row: models.Model) -> list[str]:
    """What is no mistake and yet worth knowing; raises ValueError for a configuration that cannot be put together."""
    if not isinstance(row, KernelConfig):
        return []
    try:
        return [f"config {row.name}: {found}" for found in contradictions(row)]
    except DomainError as error:
        raise ValueError(error.message) from error
