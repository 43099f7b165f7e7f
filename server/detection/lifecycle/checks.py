"""What is checked before a claim is made, as it is kept with the finding."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from server.detection.models import Finding


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not-checked"
    PENDING = "pending"  # being measured


class Name(StrEnum):
    CODE = "code"
    MACHINE = "machine"
    BASE = "base"
    LAYOUT = "layout"
    FIX = "fix"
    FIX_SEARCH = "fix-search"
    BISECTION = "bisection"
    AGAIN = "again"  # fresh boots of both ends, before a bisection


@dataclass(frozen=True)
class Check:
    """One answer, for people. `comparisons` are the ids of those that a failed check silences; none: all of `machine`.

    `revision` is the commit that the answer is about, where it is about one.
    """

    name: Name
    outcome: Outcome
    text: str
    machine: str = ""
    uarch: str = ""
    comparisons: tuple[int, ...] = ()
    revision: str = ""

    def as_json(self) -> dict[str, Any]:
        """Without what is empty, but for the machine, which pages ask for."""
        told = {key: value for key, value in asdict(self).items() if value or key == "machine"}
        return told | ({"comparisons": list(self.comparisons)} if self.comparisons else {})


def set_checks(finding: Finding, names: Sequence[Name], checks: Sequence[Check]) -> None:
    """Replace the finding's answers of these names, leaving those of others, and save them.

    The caller holds the finding's row.
    """
    others = [row for row in finding.checks if row.get("name") not in names]
    finding.checks = others + [check.as_json() for check in checks]
    Finding.objects.filter(pk=finding.pk).update(checks=finding.checks)


def add_check(finding: Finding, check: Check) -> None:
    """One more answer; that of the same name about the same revision goes."""
    told = check.as_json()
    same = (told["name"], check.revision)
    finding.checks = [row for row in finding.checks if (row.get("name"), row.get("revision", "")) != same] + [told]
    Finding.objects.filter(pk=finding.pk).update(checks=finding.checks)


def checks_named(finding: Finding, name: Name) -> list[dict[str, Any]]:
    return [row for row in finding.checks if row.get("name") == name]
