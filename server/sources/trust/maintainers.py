"""Who maintains which paths, as the tree's own MAINTAINERS says; the rules are those of scripts/get_maintainer.pl."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from server.core.git import Repository
from server.sources.wildcards import matches_text

# The kernel's has 0.9 MB and 28 000 lines.
_MOST_BYTES = 8 * 1024 * 1024
_ENTRY = re.compile(r"([A-Z]):\s*(.*)")
_ADDRESS = re.compile(r"<([^<>\s@]+@[^<>\s@]+)>|^([^<>\s@]+@[^<>\s@]+)$")
# N: is a regular expression. Those that could take long are left out: fewer people are trusted, nobody waits.
_SIMPLE_EXPRESSION = re.compile(r"(?:(?:\\.|\[\^?[^\]\\]{1,40}\]|[^\\\[\](){}|*+?])[*+?]?)+")
_MOST_REPEATS = 2
_LONGEST_PATH = 1024


@dataclass(frozen=True)
class Section:
    """One entry of the list: who (addresses in lower case), and what is theirs: patterns, exceptions, expressions."""

    title: str
    people: frozenset[str]
    files: tuple[str, ...]
    excluded: tuple[str, ...]
    names: tuple[re.Pattern[str], ...]

    def covers(self, path: str) -> bool:
        if any(_covers(pattern, path) for pattern in self.excluded):
            return False
        if any(_covers(pattern, path) for pattern in self.files):
            return True
        return len(path) <= _LONGEST_PATH and any(name.search(path) for name in self.names)


def _covers(pattern: str, path: str) -> bool:
    """A pattern fits the beginning of a path; unless it names a directory, both must lie equally deep.

    `*` and `?` take any character, a slash too, so that the depth decides; `**` frees from it.
    """
    if pattern.endswith("/"):
        return matches_text(f"{pattern}*", path)
    if "**" in pattern:
        return matches_text(f"{pattern.replace('**', '*')}*", path)
    if path.startswith(f"{pattern}/"):
        return True
    return pattern.count("/") == path.count("/") and matches_text(f"{pattern}*", path)


def read_maintainers(text: str) -> tuple[Section, ...]:
    """All sections that name people. Lines that are no entries begin a section; what cannot be read is left out."""
    sections: list[Section] = []
    title = ""
    entries: list[tuple[str, str]] = []
    for line in [*text.splitlines(), "end"]:
        found = _ENTRY.match(line)
        if found:
            entries.append((found[1], found[2].strip()))
        elif line.strip():
            if entries:
                sections.append(_section(title, entries))
            title, entries = line.strip(), []
    return tuple(section for section in sections if section.people)


def _section(title: str, entries: list[tuple[str, str]]) -> Section:
    def of(kind: str) -> list[str]:
        return [value for name, value in entries if name == kind and value]

    addresses = [found for value in of("M") if (found := _ADDRESS.search(value))]
    return Section(
        title=title[:200],
        people=frozenset((found[1] or found[2]).lower() for found in addresses),
        files=tuple(of("F")),
        excluded=tuple(of("X")),
        names=tuple(re.compile(value) for value in of("N") if _is_simple(value)),
    )


def _is_simple(expression: str) -> bool:
    repeats = sum(expression.count(sign) for sign in "*+")
    if repeats > _MOST_REPEATS or not _SIMPLE_EXPRESSION.fullmatch(expression):
        return False
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def maintainers_at(repository: Repository, commit: str) -> tuple[Section, ...]:
    """The sections of MAINTAINERS in the tree of `commit`; none where there is no such file."""
    with repository.objects() as reader:
        found = reader.read(f"{commit}:MAINTAINERS")
    if found is None or len(found[1]) > _MOST_BYTES:
        return ()
    return _parsed(*found)


@lru_cache(maxsize=8)
def _parsed(blob: str, content: bytes) -> tuple[Section, ...]:  # noqa: ARG001 (the id is what the cache knows it by)
    return read_maintainers(content.decode("utf-8", "replace"))


def unmaintained(sections: Iterable[Section], person: str, paths: Iterable[str]) -> str:
    """The first of `paths` that no section of this `person` (an address) covers; "" if there is none."""
    own = [section for section in sections if person.lower() in section.people]
    return next((path for path in paths if not any(section.covers(path) for section in own)), "")
