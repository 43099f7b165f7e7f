"""Whether a machine is physical: what registration and probes say, and the word of a person where they leave a doubt.

Only what physical machines measured is evidence (`Machine.virtual` is what all rules ask). A proof that a machine is
virtual stands, whatever anybody says. A doubt stands, too, until a person who knows the machine gives a word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import structlog
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.states import new_trace
from server.lab.models import Machine

log = structlog.get_logger(__name__)

# What every probe that can doubt tells of a physical machine, by the code of the doubt where one does not.
_ALWAYS_TOLD = {
    "vendor": "its probe does not tell the vendor of its CPUs",
    "arch": "its probe does not tell its architecture",
}
# Of the lines in the history that say what a machine is taken for.
SUBJECT = "machine-kind"
_FIELDS = ("virtual", "proved_virtual", "doubts", "physical_by", "physical_at", "physical_reason")
_MOST_DOUBTS = 20
_LONGEST_DOUBT = 300
_LONGEST_CODE = 40


class Kind(StrEnum):
    PHYSICAL = "physical"
    UNKNOWN = "unknown"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a machine is taken for and why; `by` gave the word that it is physical, if anybody did."""

    kind: Kind
    doubts: tuple[str, ...]
    by: str
    at: datetime | None
    reason: str


def standing(machine: Machine) -> Standing:
    word = (machine.physical_by, machine.physical_at, machine.physical_reason)
    return Standing(kind_of(machine), tuple(map(str, machine.doubts.values())), *word)


def kind_of(machine: Machine) -> Kind:
    """UNKNOWN is treated like VIRTUAL everywhere, and only a person can tell it apart."""
    if not machine.virtual:
        return Kind.PHYSICAL
    return Kind.UNKNOWN if machine.doubts and not machine.proved_virtual else Kind.VIRTUAL


def note_probe(machine: Machine, facts: Mapping[str, Any], *, trace: str, measured: bool) -> None:
    """Keep what a probe says of it; runs in the caller's transaction. Doubts stay until a person gives a word.

    That nothing is doubted counts only of a probe that looked: facts of a measured boot name the CPU.
    """
    before = _locked(machine)
    proved = bool(facts.get("virtual"))
    told = (_untold(facts) if measured and not proved else {}) | _doubts(facts.get("doubts"))
    new = {code: said for code, said in told.items() if machine.doubts.get(code) != said}
    machine.doubts = dict(list((machine.doubts | new).items())[-_MOST_DOUBTS:])
    machine.proved_virtual = machine.proved_virtual or proved
    machine.virtual = machine.virtual or _is_no_evidence(machine)
    reason = f"a probe saw a hypervisor: {facts.get('hypervisor') or 'unknown'}" if proved else "; ".join(new.values())
    _store(machine, before, reason, trace=trace)


def call_physical(machine: Machine, reason: str, *, actor: str) -> None:
    """A person says that it is physical: the doubts of probes, those to come as well, do not count any more.

    DomainError where it is proved to be virtual.
    """
    with transaction.atomic():
        before = _locked(machine)
        if machine.proved_virtual:
            raise DomainError("proved-virtual", f"{machine.name} is virtual: its registration or a probe says so")
        machine.physical_by, machine.physical_at, machine.physical_reason = actor, clock.now(), reason
        machine.virtual = False
        _store(machine, before, reason, actor=actor, told=True)


def take_back(machine: Machine, reason: str, *, actor: str) -> None:
    """The word that it is physical counts no more: doubts do."""
    with transaction.atomic():
        before = _locked(machine)
        if machine.physical_at is None:
            raise DomainError("no-word", f"nobody said that {machine.name} is physical")
        machine.physical_by, machine.physical_at, machine.physical_reason = "", None, ""
        machine.virtual = machine.virtual or _is_no_evidence(machine)
        _store(machine, before, reason, actor=actor, told=True)


def _is_no_evidence(machine: Machine) -> bool:
    return machine.proved_virtual or bool(machine.doubts and machine.physical_at is None)


def _locked(machine: Machine) -> Kind:
    """What it is taken for, as the row says now; nobody else changes that until the transaction ends."""
    Machine.objects.select_for_update(of=("self",)).only("pk").get(pk=machine.pk)
    machine.refresh_from_db(fields=_FIELDS)
    return kind_of(machine)


def _store(
    machine: Machine, before: Kind, reason: str, *, actor: str = "", trace: str = "", told: bool = False
) -> None:
    machine.save(update_fields=_FIELDS)
    after = kind_of(machine)
    if before == after and not told:
        return
    trace = trace or new_trace()
    Transition.objects.create(
        trace=trace, subject=SUBJECT, subject_id=machine.pk, before=before, after=after, reason=reason, actor=actor
    )
    log.info("machine_kind", trace=trace, machine=machine.name, before=before, after=after, reason=reason, actor=actor)


def _untold(facts: Mapping[str, Any]) -> dict[str, str]:
    told = {name: facts.get(name) for name in _ALWAYS_TOLD}
    return {name: said for name, said in _ALWAYS_TOLD.items() if not (isinstance(told[name], str) and told[name])}


def _doubts(told: object) -> dict[str, str]:
    """Facts come from agents: whatever is no short text is left out."""
    if not isinstance(told, Mapping):
        return {}
    some = list(told.items())[:_MOST_DOUBTS]
    return {str(code)[:_LONGEST_CODE]: said[:_LONGEST_DOUBT] for code, said in some if isinstance(said, str) and said}
