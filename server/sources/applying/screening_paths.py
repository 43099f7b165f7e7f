"""Which paths a patch may touch: below the tree, and nothing that some file system or git takes for its own."""

import re

# Code points that HFS+ ignores in names, so that they could hide in one.
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)
# Short names that NTFS makes for .git and .gitmodules.
_GIT = frozenset({".git", "git~1"})
_MODULES = frozenset({".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4"})
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
# A kernel's deepest file lies in twelve folders, and its longest path has 130 letters.
_DEEPEST = 64
_LONGEST = 1024


def objection(path: str) -> str:
    """Why `path` must not be touched, as the end of a sentence; "" if it may be."""
    if path.startswith("/"):
        return "which is outside the tree"
    for part in re.split(r"[/\\]", path):
        plain = _as_others_see(part)
        if not plain or plain in _GIT:
            return "which is outside the tree"
        if plain in _MODULES:
            return "which names submodules"
    if _CONTROL.search(path):
        return "whose name holds control characters"
    if path.count("/") > _DEEPEST or len(path.encode("utf-8", "surrogateescape")) > _LONGEST:
        return f"which lies in more than {_DEEPEST} folders or has more than {_LONGEST} letters"
    return ""


def _as_others_see(part: str) -> str:
    """One component as HFS+ or NTFS would take it; "" for one of dots and blanks alone, such as ".."."""
    return part.translate(_IGNORED).partition(":")[0].rstrip(" .").casefold()


def shown(path: str) -> str:
    """`path` for people: valid Unicode without control characters."""
    return _CONTROL.sub("?", path.encode("utf-8", "replace").decode())


def prefixes(path: str) -> list[str]:
    """All folders above `path`, and itself."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
