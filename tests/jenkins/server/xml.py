"""The XML form of an answer, and the one search over it that was recorded: builds by the value of a parameter."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_BY_PARAMETER = re.compile(
    r"//(?P<what>\w+)\[action/parameter\[name=(?P<q>['\"])(?P<name>[^'\"]*)(?P=q) and "
    r"value=(?P<r>['\"])(?P<value>[^'\"]*)(?P=r)\]\]"
)


class XPathError(ValueError):
    """A search that this server does not play."""


def search(answer: Mapping[str, Any], xpath: str, wrapper: str) -> str:
    """The matching elements inside `wrapper`. Raises XPathError."""
    found = _BY_PARAMETER.fullmatch(xpath)
    if found is None:
        raise XPathError(f"not played: {xpath}")
    hits = [each for each in answer.get(found["what"] + "s", []) if _has(each, found["name"], found["value"])]
    inner = "".join(_element(found["what"], each) for each in hits)
    return f"<{wrapper}>{inner}</{wrapper}>" if inner else f"<{wrapper}/>"


def document(answer: Mapping[str, Any], root: str) -> str:
    return _element(root, answer)


def _has(build: Mapping[str, Any], name: str, value: str) -> bool:
    return any(
        parameter.get("name") == name and parameter.get("value") == value
        for action in build.get("actions", [])
        for parameter in action.get("parameters", [])
    )


def _element(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        kind = f" _class={quoteattr(str(value['_class']))}" if "_class" in value else ""
        inner = "".join(_children(key, each) for key, each in value.items() if key != "_class")
        return f"<{name}{kind}>{inner}</{name}>" if inner else f"<{name}{kind}/>"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{name}>{escape(text)}</{name}>"


def _children(name: str, value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(_element(name.removesuffix("s"), each) for each in value)
    return _element(name, value)
