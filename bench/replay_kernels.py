"""What simulated kernels hold, as images and commits tell it."""

from collections.abc import Iterable
from dataclasses import dataclass

# Beginnings of the names of files that say what a commit holds.
STUDY, PATCH = "study-", "patch-"


@dataclass(frozen=True)
class Kernel:
    """What a simulated image holds: which study it belongs to, and which of its patches are in it, from 1."""

    study: str
    patches: frozenset[int] = frozenset()


def kernel_of(names: Iterable[str]) -> Kernel:
    """What a commit with these files holds, whoever made it: a revert of one patch is read as well."""
    kept = list(names)
    study = next(name.removeprefix(STUDY) for name in kept if name.startswith(STUDY))
    return Kernel(study, frozenset(int(name.removeprefix(PATCH)) for name in kept if name.startswith(PATCH)))
