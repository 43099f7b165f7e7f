"""The form of a check."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`detail` says what was found, whether it is right or not."""

    name: str
    ok: bool
    detail: str


def check(name: str, wrong: Iterable[str], right: str) -> Check:
    """A check that holds when nothing is wrong."""
    faults = list(wrong)
    return Check(name, not faults, "; ".join(faults) if faults else right)
