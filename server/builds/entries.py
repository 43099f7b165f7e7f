"""Fragments, configurations and toolchains described in TOML: those that are shipped, and a site's own."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models, transaction

from server.builds.models import ConfigFragment, KernelConfig, Toolchain, read_lines
from server.builds.wanted import contradictions
from server.core.errors import DomainError

_TYPE_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "a table"}
Fields = dict[str, Any]

ARCHES = ("x86_64", "arm64")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_PREFIX = re.compile(r"([a-z0-9][a-z0-9_.]{0,30}-){1,4}")
_LARGEST_FILE = 1024 * 1024


@dataclass(frozen=True)
class Key:
    """How a key is read into columns; `instead` are keys that may stand in its place."""

    read: Callable[[Any, Path], Fields]
    required: bool = False
    instead: tuple[str, ...] = ()


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {_TYPE_NAMES[kind]}")  # noqa: TRY004 (of a file, not of a program)
    return value


def _text(column: str) -> Callable[[Any, Path], Fields]:
    return lambda value, _folder: {column: _typed(value, str)}


def _flag(column: str) -> Callable[[Any, Path], Fields]:
    return lambda value, _folder: {column: _typed(value, bool)}


def _word(column: str) -> Callable[[Any, Path], Fields]:
    def read(value: Any, _folder: Path) -> Fields:
        if not _WORD.fullmatch(_typed(value, str)):
            raise ValueError(f"{value!r} is no name of a program or make target")
        return {column: value}

    return read


def _arch(value: Any, _folder: Path) -> Fields:
    if value not in ARCHES:
        raise ValueError(f"{value!r} is not one of {', '.join(ARCHES)}")
    return {"arch": value}


def _family(value: Any, _folder: Path) -> Fields:
    if value not in Toolchain.Family.values:
        raise ValueError(f"{value!r} is not one of {', '.join(Toolchain.Family.values)}")
    return {"family": value}


def _lines(column: str) -> Callable[[Any, Path], Fields]:
    def read(value: Any, _folder: Path) -> Fields:
        read_lines(_typed(value, str))
        return {column: value}

    return read


def _file(column: str) -> Callable[[Any, Path], Fields]:
    def read(value: Any, folder: Path) -> Fields:
        path = folder / _typed(value, str)
        if path.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"{path} has more than {_LARGEST_FILE} bytes")
        return _lines(column)(path.read_text(encoding="utf-8"), folder)

    return read


def _names(value: Any, _folder: Path) -> Fields:
    for name in _typed(value, list):
        _typed(name, str)
    if len(set(value)) != len(value):
        raise ValueError("names a fragment twice")
    return {"fragments": value}


def _cross(value: Any, _folder: Path) -> Fields:
    for arch, prefix in _typed(value, dict).items():
        _arch(arch, _folder)
        if not _PREFIX.fullmatch(_typed(prefix, str)):
            raise ValueError(f"{prefix!r} is no prefix like aarch64-linux-gnu-")
    return {"cross": value}


def _layout_of(value: Any, _folder: Path) -> Fields:
    config = KernelConfig.objects.filter(name=_typed(value, str)).first()
    if config is None:
        raise ValueError(f"there is no configuration {value}")
    return {"layout_of": config}


FIELDS: dict[str, dict[str, Key]] = {
    "fragment": {
        "name": Key(_text("name"), required=True),
        "arch": Key(_arch),
        "lines": Key(_lines("lines"), required=True, instead=("lines_file",)),
        "lines_file": Key(_file("lines")),
    },
    "config": {
        "name": Key(_text("name"), required=True),
        "arch": Key(_arch, required=True),
        "base": Key(_word("base")),
        "fragments": Key(_names),
        "fragment": Key(_lines("fragment")),
        "fragment_file": Key(_file("fragment")),
        "perf": Key(_flag("perf")),
        "layout_of": Key(_layout_of),
    },
    "toolchain": {
        "name": Key(_text("name"), required=True),
        "compiler": Key(_word("compiler"), required=True),
        "family": Key(_family),
        "cross": Key(_cross),
    },
}
# A site's file is the whole truth about its entries: what it leaves out is as if it had never been set.
DEFAULTS: dict[str, Fields] = {
    "fragment": {"arch": ""},
    "config": {"base": "allnoconfig", "fragments": [], "fragment": "", "perf": False, "layout_of": None},
    "toolchain": {"family": "gcc", "cross": {}},
}


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
