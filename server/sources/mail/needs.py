"""What the author says that a series stands on: its base, what must be applied before, and which series it is."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from server.sources.mail.words import message_ids

# What names something that cannot be looked up is kept under this name: a series must not lose it without a word.
UNKNOWN = "unknown"
# People write tags and short ids by hand: what cannot be found is told as such, and not lost.
_BASE_COMMIT = re.compile(r"^base-commit:[ \t]*([!-~]{1,40})", re.MULTILINE)
_CHANGE_ID = re.compile(r"^change-id:[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_PREREQUISITE = re.compile(
    r"^(?:prerequisite-(patch-id|change-id|message-id)|depends-on|based-on):[ \t]*(\S[^\n]{0,1000})$",
    re.MULTILINE | re.IGNORECASE,
)
_PATCH_ID = re.compile(r"[0-9a-f]{40}\b")
_URL = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
# So much can be stored of one.
_LONGEST = 300
# A series of 2000 patches may stand on another one as long.
_MOST = 4_000


@dataclass(frozen=True)
class Needs:
    """`base_commit` is as it was written, of at most 40 characters.

    `prerequisites` are "patch-id:HEX", "change-id:ID", "message-id:ID" and "unknown:TEXT", in the order of the text.
    """

    base_commit: str = ""
    change_id: str = ""
    prerequisites: tuple[str, ...] = ()


def needs_of(text: str) -> Needs:
    """Read the lines that `git format-patch --base`, b4 and people write; quoted lines do not count."""
    lower = text.lower()
    base = _BASE_COMMIT.search(text) if "base-commit:" in lower else None
    change = _CHANGE_ID.search(text) if "change-id:" in lower else None
    found: dict[str, None] = {}
    if "prerequisite-" in lower or "depends-on:" in lower or "based-on:" in lower:
        for line in _PREREQUISITE.finditer(text):
            told = line[2].strip()
            needed = _needed((line[1] or "message-id").lower(), told)
            if not 0 < len(needed) <= _LONGEST:
                needed = f"{UNKNOWN}:{' '.join(told.split())}"[:_LONGEST]
            found[needed] = None
    return Needs(base[1] if base else "", change[1] if change else "", tuple(found)[:_MOST])


def is_unknown(need: str) -> bool:
    """Whether nothing that is stored here can be found by it."""
    return need.startswith(f"{UNKNOWN}:")


def _needed(kind: str, value: str) -> str:
    """The name under which it can be looked up; "" where there is none."""
    word = value.split(maxsplit=1)[0]
    if kind == "patch-id":
        return f"patch-id:{word}" if _PATCH_ID.fullmatch(word) else ""
    if kind == "change-id":
        return f"change-id:{word}"
    if url := _URL.search(value):
        named = _id_in(url[0])
    else:
        named = next(iter(message_ids([value if value.startswith("<") else word])), "")
    return f"message-id:{named}" if "@" in named.strip("@") else ""


def _id_in(url: str) -> str:
    """The Message-ID that the address of a mail holds, in an archive or at patchwork; "" where it holds none.

    /r/ID, /LIST/ID/T/, /project/NAME/patch/ID/, ?i=ID: a part with an @, whatever stands around it. Patchwork's own
    numbers mean nothing elsewhere.
    """
    try:
        parts = urlsplit(url)
        words = [*map(unquote, parts.path.split("/")), *parse_qs(parts.query).get("i", [])]
    except ValueError:
        return ""
    return next(iter(message_ids(word for word in words if "@" in word.strip("@"))), "")
