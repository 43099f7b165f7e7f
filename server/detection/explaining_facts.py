"""What machines said about themselves in the very boots that a finding rests on."""

from collections.abc import Iterable, Mapping
from typing import Any

from server.lab.facts import first_facts
from server.lab.models import Boot, Session

_GUEST = ("virtual", "hypervisor", "virtualization")
# Of what was patched into the kernel, the parts that machines of several models can have in common.
_ALTERNATIVES = ("cleared", "detected")


def facts_in(sessions: Iterable[Session], *, virtual: bool) -> dict[int, dict[str, Any]]:
    """By session, the facts of its first measured boot of the base kernel. Two queries.

    A machine's facts of today may be those of other firmware; the patched kernel may change what it shows. Findings of
    virtual machines compare these among themselves, so there the marks of a guest say nothing and are left out.
    """
    by_id = {session.pk: session for session in sessions}
    boots = Boot.objects.filter(session__in=by_id, arm=Boot.Arm.BASE, state=Boot.State.MEASURED)
    return {pk: _prepared(told, by_id[pk], virtual=virtual) for pk, told in first_facts(boots).items()}


def _prepared(told: Any, session: Session, *, virtual: bool) -> dict[str, Any]:
    if not isinstance(told, Mapping) or not told:
        return {}
    facts = {str(name): value for name, value in told.items()}
    facts["uarch"] = session.machine.uarch.name
    chosen = facts.get("alternatives")
    if isinstance(chosen, Mapping):
        facts |= {f"alternatives {name}": chosen[name] for name in _ALTERNATIVES if isinstance(chosen.get(name), list)}
    return _as_if_physical(facts) if virtual else facts


def _as_if_physical(facts: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in facts.items() if name not in _GUEST}
    flags = kept.get("flags")
    words = flags.split() if isinstance(flags, str) else flags
    if isinstance(words, list | tuple):
        kept["flags"] = [flag for flag in words if flag != "hypervisor"]
    return kept
