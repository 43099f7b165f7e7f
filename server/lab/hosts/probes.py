"""What boots show of their machines, and how far it is believed: facts, changes of hardware, whether a machine is
physical, whose kernel it was.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.states import new_trace
from server.lab.models import Boot, Conditions, Facts, Machine, MachineFacts, Session, Trial
from server.sources.models import Revision

# What boots of one machine differ in: the kernel's own names, and memory that is in use or not.
OF_ONE_BOOT: Final = frozenset(
    {"kernel_release", "kernel_version", "kernel_build_id", "huge_pages", "memory_kb", "nodes"}
)
_LONGEST_FINGERPRINT = 100


def parts_of_facts(told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What all boots of the machine show alike, and what is this boot's own."""
    alike = {name: value for name, value in told.items() if name not in OF_ONE_BOOT}
    return alike, {name: value for name, value in told.items() if name in OF_ONE_BOOT}


def keep_facts(boot: Boot, told: Mapping[str, Any]) -> None:
    """Store what the probe saw in this boot, the part that all boots of the machine show once for all of them."""
    alike, own = parts_of_facts(told)
    Boot.objects.filter(pk=boot.pk).update(facts=shared_facts(alike) if alike else None)
    Conditions.objects.update_or_create(boot=boot, defaults={"facts": own})


def keep_facts_of_machine(machine: Machine, told: Mapping[str, Any]) -> None:
    if facts_of_machine(machine) != told:
        machine.facts = MachineFacts.objects.update_or_create(machine=machine, defaults={"document": dict(told)})[0]


def facts_of_machine(machine: Machine) -> dict[str, Any]:
    """What its last boot's probe saw; {} where none told anything. One query, or none where it was read with it."""
    try:
        return _mapping(machine.facts.document)
    except MachineFacts.DoesNotExist:
        return {}


def facts_of_boots(boots: QuerySet[Boot]) -> dict[int, dict[str, Any]]:
    """By boot, all that its probe saw. Two queries; documents that several boots share are read once."""
    rows = list(boots.values_list("pk", "facts_id", "conditions__facts"))
    shared = dict(Facts.objects.filter(pk__in={row[1] for row in rows}).values_list("pk", "document"))
    return {pk: {**_mapping(shared.get(facts)), **_mapping(own)} for pk, facts, own in rows}


def first_facts(boots: QuerySet[Boot]) -> dict[int, dict[str, Any]]:
    """By session, what the probe saw in the first of these boots. Two queries."""
    first = dict(boots.order_by("session_id", "position").distinct("session_id").values_list("session_id", "pk"))
    facts = facts_of_boots(Boot.objects.filter(pk__in=first.values()))
    return {session: facts[pk] for session, pk in first.items()}


def fingerprint_of(facts: Mapping[str, Any]) -> str:
    """That of hardware and firmware, SCHEME-HASH; "" where the probe told none."""
    told = facts.get("fingerprint")
    return told if isinstance(told, str) and "-" in told else ""


def sha256_of_facts(alike: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(alike, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def shared_facts(alike: Mapping[str, Any]) -> Facts:
    """The one row of these facts."""
    told = alike.get("fingerprint")
    seen = {
        "virtual": alike.get("virtual") is True,
        "fingerprint": told[:_LONGEST_FINGERPRINT] if isinstance(told, str) else "",
        "document": dict(alike),
    }
    return Facts.objects.get_or_create(sha256=sha256_of_facts(alike), defaults=seen)[0]


def _mapping(document: object) -> dict[str, Any]:
    return document if isinstance(document, dict) else {}


# Whether a machine is physical: what registration and probes say, and the word of a person where they leave a doubt.
#
# Only what physical machines measured is evidence (`Machine.virtual` is what all rules ask). A proof that a machine
# is virtual stands, whatever anybody says. A doubt stands, too, until a person who knows the machine gives a word.

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


def latest_changes(machine: Machine, *, limit: int) -> "QuerySet[Any, Any]":
    """The newest first, as lists of the values of `HardwareChange`."""
    rows = Transition.objects.filter(subject=_SUBJECT, subject_id=machine.pk).order_by("-id")
    return rows.values_list("at", "reason", "trace")[:limit]


def changes_since(machine: Machine, since: datetime) -> str:
    """What changed of the machine's hardware or firmware from then on, one text; "" if nothing that probes saw."""
    rows = Transition.objects.filter(subject=_SUBJECT, subject_id=machine.pk, at__gte=since).order_by("id")
    return "; ".join(dict.fromkeys(rows[:_MOST_DETAILS].values_list("reason", flat=True)))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The parts that differ, each with the facts that tell it if they differ too: "firmware: microcode 0x1 -> 0x2"."""
    was, now = _parts(before.get("fingerprint_parts")), _parts(after.get("fingerprint_parts"))
    told = []
    for part in (name for name in _TELLING if was.get(name) != now.get(name)):
        details = [detail for fact in _TELLING[part] for detail in _details(fact, before.get(fact), after.get(fact))]
        told.append(f"{part}: {', '.join(details)}" if details else part)
    return "; ".join(told) or "fingerprint"


def _details(name: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    if isinstance(before, Mapping) or isinstance(after, Mapping):
        was, now = _parts(before), _parts(after)
        names = sorted({*map(str, was), *map(str, now)})[:_MOST_DETAILS]
        return [detail for one in names for detail in _details(one, was.get(one), now.get(one))]
    return [f"{name[:_LONGEST_VALUE]} {_short(before)} -> {_short(after)}"]


def _parts(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: Any) -> str:
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


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


class MachineKind(StrEnum):
    PHYSICAL = "physical"
    UNKNOWN = "unknown"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a machine is taken for and why; `by` gave the word that it is physical, if anybody did."""

    kind: MachineKind
    doubts: tuple[str, ...]
    by: str
    at: datetime | None
    reason: str


def standing(machine: Machine) -> Standing:
    word = (machine.physical_by, machine.physical_at, machine.physical_reason)
    return Standing(kind_of(machine), tuple(map(str, machine.doubts.values())), *word)


def kind_of(machine: Machine) -> MachineKind:
    """UNKNOWN is treated like VIRTUAL everywhere, and only a person can tell it apart."""
    if not machine.virtual:
        return MachineKind.PHYSICAL
    return MachineKind.UNKNOWN if machine.doubts and not machine.proved_virtual else MachineKind.VIRTUAL


def note_probe(machine: Machine, facts: Mapping[str, Any], *, trace: str, measured: bool) -> None:
    """Keep what a probe says of it; runs in the caller's transaction. Doubts stay until a person gives a word.

    That nothing is doubted counts only of a probe that looked: facts of a measured boot name the CPU. Most say what is
    known: then nothing is written, and the row not locked.
    """
    known = [getattr(machine, name) for name in _FIELDS]
    _believe(machine, facts, measured=measured)
    if known == [getattr(machine, name) for name in _FIELDS]:
        return
    before = _locked(machine)
    reason = _believe(machine, facts, measured=measured)
    _store(machine, before, reason, trace=trace)


def _believe(machine: Machine, facts: Mapping[str, Any], *, measured: bool) -> str:
    """Set what follows from this probe; returns what is new in it."""
    proved = bool(facts.get("virtual"))
    told = (_untold(facts) if measured and not proved else {}) | _doubts(facts.get("doubts"))
    new = {code: said for code, said in told.items() if machine.doubts.get(code) != said}
    machine.doubts = dict(list((machine.doubts | new).items())[-_MOST_DOUBTS:])
    machine.proved_virtual = machine.proved_virtual or proved
    machine.virtual = machine.virtual or _is_no_evidence(machine)
    return f"a probe saw a hypervisor: {facts.get('hypervisor') or 'unknown'}" if proved else "; ".join(new.values())


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


def _locked(machine: Machine) -> MachineKind:
    """What it is taken for, as the row says now; nobody else changes that until the transaction ends."""
    machine.refresh_from_db(fields=_FIELDS, from_queryset=Machine.objects.select_for_update(of=("self",)))
    return kind_of(machine)


def _store(
    machine: Machine, before: MachineKind, reason: str, *, actor: str = "", trace: str = "", told: bool = False
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


_OWN_KERNELS = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)


def _is_published(build: str) -> Q:
    """Whether a watched tree has the source of this build, whoever asked for it first."""
    return Q(Exists(Revision.objects.filter(tree_sha=OuterRef(f"session__{build}__tree_sha"), foreign=False)))


# The base of a trial about a series may be that series without its last patches, or hold other ones.
TRUSTED_BOOT = (Q(arm=Boot.Arm.BASE) & _is_published("base_build")) | (
    Q(arm=Boot.Arm.PATCHED) & _OWN_KERNELS & _is_published("patched_build")
)


def trees_of_patches(trees: Collection[str]) -> set[str]:
    """Those of `trees` (git tree ids) that hold a patch of a mail: no watched tree published a commit of them.

    What such a build tells of its kernel is its author's word: a Makefile may leave another image beside the vmlinux
    that is hashed. It is good for what is said of the series itself, and for nobody else.
    """
    published = Revision.objects.filter(tree_sha__in=trees, foreign=False)
    return set(trees).difference(published.values_list("tree_sha", flat=True))
