"""Configurations of jobs and nodes compared by what they mean."""

import difflib
import re
import xml.etree.ElementTree as ET

# XML 1.1, which Jenkins declares, is not known to the parser; what it allows in addition we never write.
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
# A node's mark as offline is part of its configuration for Jenkins, and gone when it is sent one without.
_MARK = re.compile(r"[ \t]*<temporaryOfflineCause\b(?:[^>]*/>|.*?</temporaryOfflineCause>)\n?", re.DOTALL)
# What Jenkins writes for a setting that nobody made.
_DEFAULTS = frozenset({"", "false"})


def difference(there: bytes, ours: str, name: str) -> str:
    """What would change, as a unified diff of both in one form; empty if they mean the same."""
    before, after = normalized(there.decode("utf-8", "replace")), normalized(ours)
    if before == after:
        return ""
    lines = difflib.unified_diff(before, after, f"{name} on the controller", f"{name} as defined", lineterm="")
    return "\n".join(lines)


def with_mark_of(there: bytes, ours: str) -> str:
    """Our configuration of a node with the mark that it bears: a session's or a person's, never ours to end."""
    mark = _MARK.search(there.decode("utf-8", "replace"))
    return ours.replace("</slave>", f"{mark[0]}</slave>") if mark else ours


def normalized(text: str) -> list[str]:
    """The configuration as lines: no order among settings, no versions of plugins, nothing that is a default anyway.

    What cannot be parsed is given back as it is, and so differs from ours.
    """
    body = _DECLARATION.sub("", text)
    if "<!" in body:
        return text.splitlines()
    try:
        return list(_lines(ET.fromstring(body), ""))  # noqa: S314 (there is no declaration in it)
    except ET.ParseError:
        return text.splitlines()


def description_of(content: bytes) -> str:
    """The description in a configuration; empty if there is none or it cannot be read."""
    body = _DECLARATION.sub("", content.decode("utf-8", "replace"))
    if "<!" in body:
        return ""
    try:
        return ET.fromstring(body).findtext("description") or ""  # noqa: S314 (there is no declaration in it)
    except ET.ParseError:
        return ""


def _lines(element: ET.Element, indent: str) -> list[str]:
    attributes = "".join(f' {key}="{value}"' for key, value in sorted(element.attrib.items()) if key != "plugin")
    text = (element.text or "").strip().replace("\r\n", "\n")
    children = [_lines(child, f"{indent}  ") for child in element]
    # Two steps of one job have an order, settings of different names have none.
    children = sorted((lines for lines in children if lines), key=lambda lines: lines[0].split(">")[0])
    if not children and not attributes and text in _DEFAULTS and indent:
        return []
    own = [f"{indent}<{element.tag}{attributes}>", *(f"{indent}  {line}" for line in text.splitlines())]
    return own + [line for lines in children for line in lines]
