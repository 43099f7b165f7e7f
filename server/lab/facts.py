"""What probes saw of machines, kept once for all boots that showed the same, and put together again for readers."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet

from server.lab.models import Boot, Conditions, Facts, Machine, MachineFacts

# What boots of one machine differ in: the kernel's own names, and memory that is in use or not.
OF_ONE_BOOT: Final = frozenset(
    {"kernel_release", "kernel_version", "kernel_build_id", "huge_pages", "memory_kb", "nodes"}
)
_LONGEST_FINGERPRINT = 100


def keep_facts(boot: Boot, told: Mapping[str, Any]) -> None:
    """Store what the probe saw in this boot, the part that all boots of the machine show once for all of them."""
    alike = {name: value for name, value in told.items() if name not in OF_ONE_BOOT}
    own = {name: value for name, value in told.items() if name in OF_ONE_BOOT}
    Boot.objects.filter(pk=boot.pk).update(facts=_row(alike) if alike else None)
    Conditions.objects.update_or_create(boot=boot, defaults={"facts": own})


def keep_facts_of_machine(machine: Machine, told: Mapping[str, Any]) -> None:
    MachineFacts.objects.update_or_create(machine=machine, defaults={"document": dict(told)})


def facts_of_machine(machine: Machine) -> dict[str, Any]:
    """What its last boot's probe saw; {} where none told anything. One query."""
    return _mapping(MachineFacts.objects.filter(machine=machine).values_list("document", flat=True).first())


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


def _row(alike: dict[str, Any]) -> Facts:
    text = json.dumps(alike, sort_keys=True, separators=(",", ":"))
    told = alike.get("fingerprint")
    seen = {
        "virtual": alike.get("virtual") is True,
        "fingerprint": told[:_LONGEST_FINGERPRINT] if isinstance(told, str) else "",
        "document": alike,
    }
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Facts.objects.get_or_create(sha256=sha256, defaults=seen)[0]


def _mapping(document: object) -> dict[str, Any]:
    return document if isinstance(document, dict) else {}
