"""Trailers: what people say of a patch in lines like `Reviewed-by: Ada <ada@example.org>`."""

import re
from collections.abc import Iterable, Iterator

from server.sources.mail.words import person

_TRAILER = re.compile(r"[ \t]{0,8}([A-Za-z][A-Za-z0-9-]{1,40}):[ \t]{1,99}(\S.*)")
# Trailers without a person.
_FACTS = frozenset({"fixes", "link", "closes", "buglink", "obsoleted-by"})
# A person may follow, but it says nothing of the patch.
_NO_TRAILERS = frozenset({"from", "author", "to", "date", "subject", "email", "e-mail", "mail", "phone", "message-id"})
_NOT_IN_REPLIES = _NO_TRAILERS | {"cc"}
_PERSON = re.compile(r"[^\s@<>]@[^\s@<>]")
_ADDRESS_ALONE = re.compile(r"\s{0,8}<[^<>\s]+@[^<>\s]+>\s*")
_COMMIT = re.compile(r"[0-9a-f]{6,40}\b")
# What mailers make of an address when they turn HTML into text: <ada@example.org<mailto:ada@example.org>>.
_MADE_OF_HTML = re.compile(r"<mailto:[^<>\s]{1,320}>(?=>)")
_LONGEST = 1_000
_MOST = 500


def trailers_of_patch(text: str) -> tuple[str, ...]:
    """The trailers of a commit message, as written: those at its end, where whole paragraphs may be trailers."""
    found: list[str] = []
    for lines in reversed(_paragraphs(text)):
        trailers = list(_trailers(lines, _NO_TRAILERS))
        found[:0] = trailers
        if len(trailers) < len(lines) and found:
            break
        if not trailers:
            break
    return tuple(dict.fromkeys(found))[:_MOST]


def trailers_of_reply(text: str, sender: tuple[str, str]) -> tuple[str, ...]:
    """The trailers that `sender` gives in an answer, as written. Quoted lines and signatures do not count, nor what
    one person says in the name of another.
    """
    lines = (line for line in text.partition("\n-- \n")[0].split("\n") if not line.startswith(">"))
    name, address = sender[0].lower(), sender[1].lower()
    found: dict[str, None] = {}
    for trailer in _trailers(lines, _NOT_IN_REPLIES):
        key, _, value = trailer.partition(":")
        if key.lower() not in _FACTS:
            said_name, said_address = person(value)
            if said_address.lower() != address and not (name and said_name.lower() == name):
                continue
        found[trailer] = None
    return tuple(found)[:_MOST]


def _paragraphs(text: str) -> list[list[str]]:
    """The paragraphs of a patch's commit message: all before the line `---` or the diff."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith(("--- ", "diff -", "Index: ")) or line.rstrip() == "---":
            break
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _trailers(lines: Iterable[str], unwanted: frozenset[str]) -> Iterator[str]:
    for line in _unwrapped(lines):
        found = _matched(line)
        if found and (name := found[1].lower()) not in unwanted and _is_trailer(name, found[2]):
            trailer = f"{found[1]}: {_MADE_OF_HTML.sub('', found[2]).rstrip()}"
            if len(trailer) <= _LONGEST:
                yield trailer


def _matched(line: str) -> re.Match[str] | None:
    return _TRAILER.fullmatch(line) if ": " in line and len(line) <= _LONGEST else None


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Mailers break long lines: before the address of a person, or in the title of the commit that is mended."""
    broken = ""
    for line in lines:
        if broken and (_ADDRESS_ALONE.fullmatch(line) or (broken.startswith("Fixes:") and line.rstrip().endswith(")"))):
            yield f"{broken} {line.strip()}"
            broken = ""
            continue
        if broken:
            yield broken
        broken = line.rstrip() if _is_broken(line) else ""
        if not broken:
            yield line
    if broken:
        yield broken


def _is_broken(line: str) -> bool:
    found = _matched(line)
    if not found:
        return False
    if found[1] == "Fixes":
        return "(" in line and not line.rstrip().endswith(")")
    return found[1].lower().endswith("-by") and "@" not in line


def _is_trailer(name: str, value: str) -> bool:
    if name in _FACTS:
        return name != "fixes" or bool(_COMMIT.match(value))
    return bool(_PERSON.search(value)) and "://" not in value
