"""Which commits hold what a series was made on: the blobs that its diffs name as they were before it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from server.core.git import Repository
from server.sources.mail.diffs import Diff

_NO_BLOB = frozenset("0")
# git abbreviates to at least so many digits in a large tree; fewer would match by chance.
_FEWEST_DIGITS = 7
# A longer list of paths does not fit on a command line, and history is looked at for each.
MOST_PATHS = 500


@dataclass(frozen=True)
class PreImages:
    """`blobs`: path to (abbreviated) blob id before the series; `untold`: paths that were there, but nobody says how.

    Of a treewide change only the first 500 paths are asked for, the others count as untold.
    """

    blobs: Mapping[str, str]
    untold: frozenset[str]

    @property
    def complete(self) -> bool:
        return bool(self.blobs) and not self.untold

    def found_in(self, content: Mapping[str, str]) -> int:
        """How many of the blobs `content` (path to blob id) holds at their paths."""
        return sum(content.get(path, "-").startswith(blob) for path, blob in self.blobs.items())


def pre_images(diffs: Iterable[Diff]) -> PreImages:
    """What the tree below a series held, given the diffs of its patches in order.

    A file that an earlier patch touched tells nothing more, for its pre-image was made by the series itself.
    """
    blobs: dict[str, str] = {}
    untold: set[str] = set()
    touched: set[str] = set()
    for diff in diffs:
        for file in diff.files:
            path = file.old_path
            if path is None or path in touched or path in blobs:
                continue
            if _is_blob(file.old_blob) and len(blobs) < MOST_PATHS:
                blobs[path] = file.old_blob
                untold.discard(path)
            else:
                untold.add(path)
        touched.update(p for file in diff.files for p in (file.old_path, file.new_path) if p is not None)
    return PreImages(blobs, frozenset(untold))


def _is_blob(name: str) -> bool:
    return len(name) >= _FEWEST_DIGITS and set(name) != _NO_BLOB


def content_at(repository: Repository, commit: str, paths: Iterable[str]) -> dict[str, str]:
    """Blob ids of those `paths` that `commit` holds."""
    asked = sorted(paths)
    found: dict[str, str] = {}
    for start in range(0, len(asked), MOST_PATHS):
        some = asked[start : start + MOST_PATHS]
        listed = repository.output("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *some)
        for line in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
            entry, _, path = line.partition("\t")
            found[path] = entry.split()[2]
    return found
