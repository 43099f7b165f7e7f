"""What each of the demo's series must end with."""

from collections.abc import Mapping
from dataclasses import dataclass

_WITH_ERMS = ("haswell", "zen3")
_WITHOUT_ERMS = ("nehalem", "zen1")


@dataclass(frozen=True)
class Outcome:
    """`verdicts` by microarchitecture; `same_image` when both kernels must be the same bytes.

    `ends` says, for a series that is not meant to reach a verdict, what stops it. One that is not `mailed` has a draft
    that waits for a person: nobody is sent an improvement as news. `culprit` is the patch that bisection must name,
    on each microarchitecture that moved.
    """

    kind: str
    verdicts: Mapping[str, str]
    same_image: bool = False
    ends: str = ""
    mailed: bool = True
    culprit: int = 0


def _with_erms(verdict: str) -> dict[str, str]:
    return {**dict.fromkeys(_WITH_ERMS, verdict), **dict.fromkeys(_WITHOUT_ERMS, "unchanged")}


OUTCOMES = {
    "slow": Outcome("regressed", _with_erms("regressed"), culprit=2),
    "split": Outcome("split", {**_with_erms("improved"), "zen3": "regressed"}, culprit=4),
    "revert": Outcome("improved", _with_erms("improved"), mailed=False, culprit=1),
    "null": Outcome("unchanged", _with_erms("unchanged"), same_image=True),
    "broken": Outcome("", {}, ends="its kernel does not compile"),
    "panic": Outcome("", {}, ends="its kernel does not boot"),
    "conflict": Outcome("", {}, ends="it does not apply"),
}
