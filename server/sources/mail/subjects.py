"""What a subject line says: `[PATCH v3 2/8 mm-unstable] mm: Do this` and its many relatives."""

import re
from dataclasses import dataclass

# Numbers with more digits are no versions or counters, whatever brackets they stand in.
_BRACKETS = re.compile(r"\s*\[([^\[\]]{0,200})\]")
_REPLY = re.compile(r"\s*(?:re|aw|sv|vs|antw|fwd?)(?:\[\d{1,3}\])?\s*:", re.IGNORECASE)
_VERSION = re.compile(r"(?:patch|rfc)?-?v(\d{1,3})(?:\.\d{1,2})?", re.IGNORECASE)
_COUNTER = re.compile(r"(\d{1,4})/(\d{1,4})")


@dataclass(frozen=True)
class Marks:
    """`index` and `total` are None where the subject has no counter; `patch` tells whether a mark announces one."""

    title: str
    patch: bool = False
    reply: bool = False
    rfc: bool = False
    resend: bool = False
    version: int = 1
    index: int | None = None
    total: int | None = None
    tags: tuple[str, ...] = ()


def parse_subject(subject: str) -> Marks:
    tokens: list[str] = []
    reply = False
    rest = subject
    while True:
        if found := _REPLY.match(rest):
            reply = True
        elif found := _BRACKETS.match(rest):
            tokens += re.split(r"[\s,:;]+", found[1])
        else:
            break
        rest = rest[found.end() :]
    return _marks(" ".join(rest.split()), [t for t in tokens if t], reply=reply)


def _marks(title: str, tokens: list[str], *, reply: bool) -> Marks:
    patch = rfc = resend = False
    version, index, total = 1, None, None
    tags: list[str] = []
    for token in tokens:
        word = token.lower().strip("-_")
        if found := _COUNTER.fullmatch(token):
            index, total = int(found[1]), int(found[2])
        elif found := _VERSION.fullmatch(token):
            version = max(int(found[1]), 1)
            patch |= word.startswith("patch")
        elif word.startswith("patch"):
            patch = True
        elif word == "resend":
            resend = True
        elif word != "rfc":
            tags.append(token)
        rfc |= word.startswith("rfc")
    announced = patch or rfc or index is not None
    return Marks(title, announced, reply, rfc, resend, version, index, total, tuple(tags))
