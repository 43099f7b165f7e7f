"""Which refs of a remote are watched: those whose names match, are harmless and can stand beside each other."""

import fnmatch
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

# Letters that stay themselves in pages, mails, refs and on command lines. The agents refuse others, too.
_PART = re.compile(r"[A-Za-z0-9_+@][A-Za-z0-9._+@-]*")
# With the name of a tree and what stands before it a ref has 200 characters, the most that agents take.
LONGEST_NAME = 120
MOST_BRANCHES = 1000
MOST_TAGS = 20_000
_NAMED = 3


@dataclass(frozen=True)
class Selection:
    """Names with their object ids, and in `complaints` what was refused and why."""

    refs: dict[str, str]
    complaints: tuple[str, ...]


def is_usable(name: str) -> bool:
    """Whether a branch or tag may have this name here; stricter than git."""
    parts = name.split("/")
    return len(name) <= LONGEST_NAME and ".." not in name and all(_is_part(part) for part in parts)


def _is_part(part: str) -> bool:
    return bool(_PART.fullmatch(part)) and not part.endswith((".", ".lock"))


def is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def select(
    kind: str, refs: Mapping[str, str], patterns: Iterable[str], *, most: int, known: Container[str]
) -> Selection:
    """What of `refs` matches a pattern. `kind` is the word for complaints: branch or tag.

    Where more than `most` match, those in `known` are taken first, so that a flood of names pushes nothing out.
    """
    wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")
    names = {name for name in refs if wanted.fullmatch(name)}
    hostile = sorted(name for name in names if not is_usable(name))
    names.difference_update(hostile)
    below = sorted(name for name in names if any(parent in names for parent in parents(name)))
    names.difference_update(below)
    taken = sorted(names, key=lambda name: (name not in known, name))[:most]
    return Selection(
        refs={name: refs[name] for name in sorted(taken)},
        complaints=(
            *_refused(hostile, f"{kind} names with strange characters or more than {LONGEST_NAME} of them"),
            *_refused(below, f"{kind} names below another {kind}"),
            *([f"{len(names)} {kind} names match, {most} are watched"] if len(names) > most else []),
        ),
    )


def parents(name: str) -> list[str]:
    """`a/b/c`: `a`, `a/b`. None of them can be a ref beside it."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def in_the_way(name: str, others: Iterable[str]) -> list[str]:
    """Those of `others` that cannot be refs beside `name`."""
    above = set(parents(name))
    return [other for other in others if other in above or other.startswith(f"{name}/")]


def _refused(names: list[str], why: str) -> list[str]:
    if not names:
        return []
    shown = ", ".join(ascii(name)[:60] for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"refused {why}: {shown}{more}"]


def unmatched(kind: str, refs: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    """A complaint about patterns that match nothing: probably a mistake, or the branch was deleted."""
    missing = [p for p in patterns if not (any(fnmatch.fnmatchcase(n, p) for n in refs) if is_glob(p) else p in refs)]
    return [f"no such {kind}: {', '.join(missing)}"] if missing else []
