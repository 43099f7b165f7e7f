"""Changes of a machine's hardware or firmware, seen by the fingerprints of two boots."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from server.core.models import Transition
from server.lab.facts import facts_of_machine, fingerprint_of
from server.lab.models import Machine

log = structlog.get_logger(__name__)

_SUBJECT = "machine"
# As long as a state may be in the history of states.
_SHOWN = 20
_LONGEST_VALUE = 60
_MOST_DETAILS = 20
# The facts that say, for each part of the fingerprint, what people want to know first.
_TELLING = {
    "cpu": ("model_name", "stepping", "cpus"),
    "memory": ("memory_kb",),
    "firmware": ("microcode", "firmware"),
    "board": ("board",),
}


@dataclass(frozen=True, slots=True)
class HardwareChange:
    at: datetime
    reason: str
    trace: str


def note_change(*, machine: Machine, facts: Mapping[str, Any], trace: str) -> str:
    """Write a line of history if `facts` show another machine than `machine.facts` do; returns what changed, or "".

    Runs in the caller's transaction, before the facts are replaced. Machines whose probes tell no fingerprint, or one
    made by another scheme (the number before the dash), cannot be compared and are not.
    """
    known = facts_of_machine(machine)
    before, after = fingerprint_of(known), fingerprint_of(facts)
    if not before or not after or before == after or before.split("-")[0] != after.split("-")[0]:
        return ""
    reason = _difference(known, facts)
    Transition.objects.create(
        trace=trace,
        subject=_SUBJECT,
        subject_id=machine.pk,
        before=before[:_SHOWN],
        after=after[:_SHOWN],
        reason=reason,
    )
    name = machine.name
    transaction.on_commit(lambda: log.warning("machine_changed", machine=name, trace=trace, changed=reason))
    return reason


def latest_changes(machine: Machine, *, limit: int) -> tuple[HardwareChange, ...]:
    """The newest first."""
    rows = Transition.objects.filter(subject=_SUBJECT, subject_id=machine.pk).order_by("-id")[:limit]
    return tuple(HardwareChange(at=row.at, reason=row.reason, trace=row.trace) for row in rows)


def changes_since(machine: Machine, since: datetime) -> str:
    """What changed of the machine's hardware or firmware from then on, one text; "" if nothing that probes saw."""
    rows = Transition.objects.filter(subject=_SUBJECT, subject_id=machine.pk, at__gte=since).order_by("id")
    return "; ".join(dict.fromkeys(rows[:_MOST_DETAILS].values_list("reason", flat=True)))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The parts that differ, each with the facts that tell it if they differ too: "firmware: microcode 0x1 -> 0x2"."""
    was, now = _mapping(before.get("fingerprint_parts")), _mapping(after.get("fingerprint_parts"))
    told = []
    for part in (name for name in _TELLING if was.get(name) != now.get(name)):
        details = [detail for fact in _TELLING[part] for detail in _details(fact, before.get(fact), after.get(fact))]
        told.append(f"{part}: {', '.join(details)}" if details else part)
    return "; ".join(told) or "fingerprint"


def _details(name: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    if isinstance(before, Mapping) or isinstance(after, Mapping):
        was, now = _mapping(before), _mapping(after)
        names = sorted({*map(str, was), *map(str, now)})[:_MOST_DETAILS]
        return [detail for one in names for detail in _details(one, was.get(one), now.get(one))]
    return [f"{name[:_LONGEST_VALUE]} {_short(before)} -> {_short(after)}"]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: Any) -> str:
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
