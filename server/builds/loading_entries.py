"""Which keys entries of fragments, configurations and toolchains have, and how each is read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.builds.config_lines import read_lines
from server.builds.models import KernelConfig, Toolchain

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
