"""What the author says that a series stands on: its base, what must be applied before, and which series it is."""

import re
from dataclasses import dataclass

from server.sources.mail.words import message_ids

_BASE_COMMIT = re.compile(r"^base-commit:[ \t]*([0-9a-f]{40})\b", re.MULTILINE)
_CHANGE_ID = re.compile(r"^change-id:[ \t]*(\S{1,200})[ \t]*$", re.MULTILINE)
_PREREQUISITE = re.compile(
    r"^(?:prerequisite-(patch-id|change-id|message-id)|depends-on|based-on):[ \t]*(\S[^\n]{0,1000})$",
    re.MULTILINE | re.IGNORECASE,
)
_PATCH_ID = re.compile(r"[0-9a-f]{40}\b")
# So much can be stored of one.
_LONGEST = 300
# A series of 2000 patches may stand on another one as long.
_MOST = 4_000


@dataclass(frozen=True)
class Needs:
    """`prerequisites`: "patch-id:HEX", "change-id:ID", "message-id:ID", in the order of the text."""

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
            needed = _needed((line[1] or "message-id").lower(), line[2].strip())
            if 0 < len(needed) <= _LONGEST:
                found[needed] = None
    return Needs(base[1] if base else "", change[1] if change else "", tuple(found)[:_MOST])


def _needed(kind: str, value: str) -> str:
    word = value.split(maxsplit=1)[0]
    if kind == "patch-id":
        return f"patch-id:{word}" if _PATCH_ID.fullmatch(word) else ""
    if kind == "change-id":
        return f"change-id:{word}"
    if word.startswith(("http://", "https://")):
        # The address of a mail in an archive holds its Message-ID.
        word = next((part for part in word.split("/")[3:] if "@" in part), "")
    ids = message_ids([value if value.startswith("<") else word])
    return f"message-id:{ids[0]}" if ids and "@" in ids[0] else ""
