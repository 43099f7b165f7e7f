"""Which kernels a reader means by a word: a commit, or one build."""

import re

from server.builds.models import Build
from server.core.errors import DomainError
from server.detection.trials.pair import kernels_of
from server.sources.models import Revision

SHA = re.compile(r"[0-9a-f]{7,40}")
HOW = "A commit, in full or its first digits (7 or more), or build:ID."
_LONGEST_ID = 9
_SHOWN = 40


def named_kernel(word: str) -> tuple[Revision, set[int]]:
    """The revision, read with its tree, and its builds; raises DomainError `unknown-kernel`."""
    kind, mark, number = word.partition(":")
    if mark and kind == "build":
        known = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_ID
        build = Build.objects.select_related("revision__tree").filter(pk=number).first() if known else None
        if build is None:
            raise _unknown(f"There is no build {number[:_SHOWN]}.")
        return build.revision, {build.pk}
    if not SHA.fullmatch(word):
        raise _unknown(HOW)
    rows = list(Revision.objects.select_related("tree").filter(sha__startswith=word).order_by("sha")[:3])
    if len(rows) != 1:
        several = f"{word} begins several commits: {', '.join(row.sha for row in rows)}."
        raise _unknown(several if rows else f"There is no commit {word} here.")
    return rows[0], kernels_of(rows[0])


def _unknown(message: str) -> DomainError:
    return DomainError("unknown-kernel", message)
