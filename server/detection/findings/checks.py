"""Checks as they are kept with a finding; holding it, and stopping its trials."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from django.db import transaction

from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.models import Finding, FindingState, FindingTrial
from server.lab.models import Trial
from server.lab.trials.life import cancel_trial
from server.lab.trials.question import Ask, want_trial


def held(finding_id: int) -> Finding:
    """The finding as it is now, held to the end of the transaction. DomainError `finding-unknown` if there is none."""
    rows = Finding.objects.select_for_update(of=("self",), no_key=True)
    finding = rows.select_related("series", "trial", "branch__tree").filter(pk=finding_id).first()
    if finding is None:
        raise DomainError("finding-unknown", f"there is no finding {finding_id}")
    return finding


_ENDED = (FindingState.INVALID, FindingState.SUPERSEDED)


def stop_trials(finding: Finding, reason: str) -> None:
    """Cancel the open trials that check this finding or its mending; bisections look after their own.

    The caller holds the finding, and who answers a trial holds that first: one that is held now is not waited for, but
    left to the sweep.
    """
    asked = Trial.objects.filter(asked_by__finding=finding).exclude(state__in=Trial.FINAL)
    with transaction.atomic():
        for trial in asked.select_for_update(of=("self",), no_key=True, skip_locked=True):
            cancel_trial(trial, Because.NOT_WANTED(reason))


def stop_forgotten(most: int) -> None:
    """For the sweep: trials about findings that have ended, and for which nobody stopped them."""
    asked = Finding.objects.filter(asked__trial__state__in=[Trial.State.WANTED, Trial.State.MEASURING])
    ended = asked.filter(state__in=_ENDED).order_by("pk").distinct()
    for finding in ended[:most]:
        stop_trials(finding, f"finding {finding.pk} is {finding.state}")


def ask_for(finding: Finding, ask: Ask) -> Trial:
    """The trial that answers for this finding. The caller holds the finding."""
    trial = want_trial(ask)
    FindingTrial.objects.get_or_create(trial=trial, defaults={"finding": finding})
    return trial


class CheckOutcome(StrEnum):
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
    RETEST = "retest"  # the whole question once more, for a person


@dataclass(frozen=True)
class Check:
    """One answer, for people. `comparisons` are the ids of those that a failed check silences; none: all of `machine`.

    `revision` is the commit that the answer is about, where it is about one.
    """

    name: Name
    outcome: CheckOutcome
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
    Finding.objects.filter(pk=finding.pk).update(checks=finding.checks, news=True)


def add_check(finding: Finding, check: Check) -> None:
    """One more answer; that of the same name about the same revision goes."""
    told = check.as_json()
    same = (told["name"], check.revision)
    finding.checks = [row for row in finding.checks if (row.get("name"), row.get("revision", "")) != same] + [told]
    Finding.objects.filter(pk=finding.pk).update(checks=finding.checks, news=True)


def checks_named(finding: Finding, name: Name) -> list[dict[str, Any]]:
    return [row for row in finding.checks if row.get("name") == name]
