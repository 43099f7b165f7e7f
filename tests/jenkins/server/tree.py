"""Jenkins' `tree=` parameter: which properties an answer holds, and which part of its lists."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

_WORD = re.compile(r"[^,\[\]{}]+")
_RANGE = re.compile(r"\{(?P<from>\d*)(?P<comma>,?)(?P<to>\d*)\}")


EVERYTHING = ("*",)


class TreeError(ValueError):
    """The parameter cannot be read."""


class Exported:
    """A thing with a page of its own. Values may be functions without arguments: what nobody asks for costs nothing."""

    # What is shown of it inside another thing's page where no tree= was given.
    SHORT: ClassVar[Sequence[str]] = ()

    def exported(self) -> Mapping[str, object]:
        raise NotImplementedError


@dataclass
class Tree:
    """One level; `everything` is `*`."""

    children: dict[str, "Tree"] = field(default_factory=dict)
    everything: bool = False
    start: int = 0
    stop: int | None = None


def parse(text: str) -> Tree:
    """Read `a,b[c,d{0,20}]`. Raises TreeError."""
    tree, rest = _level(text)
    if rest:
        raise TreeError(f"unexpected {rest[:20]!r}")
    return tree


def _level(text: str) -> tuple[Tree, str]:
    tree = Tree()
    while text and text[0] != "]":
        found = _WORD.match(text)
        if found is None:
            raise TreeError(f"a name was expected at {text[:20]!r}")
        child, text = Tree(), text[found.end() :]
        if text.startswith("["):
            child, text = _level(text[1:])
            if not text.startswith("]"):
                raise TreeError("a ] is missing")
            text = text[1:]
        text = _range(child, text)
        if found[0] == "*":
            tree.everything = True
        tree.children[found[0]] = child
        text = text.removeprefix(",")
    return tree, text


def _range(child: Tree, text: str) -> str:
    if not text.startswith("{"):
        return text
    found = _RANGE.match(text)
    if found is None:
        raise TreeError(f"a range was expected at {text[:20]!r}")
    child.start = int(found["from"] or 0)
    if not found["comma"]:
        child.stop = child.start + 1
    elif found["to"]:
        child.stop = int(found["to"])
    return text[found.end() :]


def project(thing: Exported, tree: Tree) -> dict[str, Any]:
    """What `tree` leaves of a thing; `_class` is always there. A deeper level that was not asked for is empty."""
    return _mapping(thing.exported(), tree)


def _mapping(values: Mapping[str, object], tree: Tree) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if name == "_class":
            kept[name] = value
        elif tree.everything or name in tree.children:
            kept[name] = _value(value, tree.children.get("*" if tree.everything else name, Tree()))
    return kept


def _value(value: object, tree: Tree) -> Any:
    if callable(value):
        value = value()
    if isinstance(value, Mapping):
        return _mapping(value, tree)
    if isinstance(value, list):
        return [_value(each, tree) for each in value[tree.start : tree.stop]]
    if isinstance(value, Exported):
        return _mapping(value.exported(), tree)
    return value


def whole(thing: Exported) -> dict[str, Any]:
    """The answer without tree=: everything of the thing, of other things on it their short form."""
    return {name: _whole(value) for name, value in thing.exported().items() if not name.startswith("all")}


def _whole(value: object) -> Any:
    if callable(value):
        value = value()
    if isinstance(value, Mapping):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, Exported) and value.SHORT == EVERYTHING:
        return whole(value)
    if isinstance(value, Exported):
        return {
            name: _whole(each) for name, each in value.exported().items() if name == "_class" or name in value.SHORT
        }
    return value
