"""The facts of a machine as they are told, made comparable: which of them count, and whether it is a guest."""

from collections.abc import Collection, Mapping

Facts = Mapping[str, object]

# Facts that tell which model a machine is: they separate any model from any other and explain nothing, but machines
# that differ in them are not the same.
MODEL = frozenset({"core_types", "family", "model", "model_name", "stepping", "uarch"})
# Facts of the single machine, or those that may differ between the kernels of one comparison.
INDIVIDUAL = frozenset({"clock", "cmdline", "hostname", "hypervisor", "kernel_release", "machine", "virtual"})
NAMES = MODEL | INDIVIDUAL
# Facts come from agents: more memory is somebody's mistake.
_MOST_MEMORY = 1e18
# What is told of the hypervisor by machines that have none.
_NO_GUEST = frozenset({"", "0", "false", "no", "none"})
_KIB_OF_GIB = 1 << 20


def tidy(told: object) -> dict[str, object]:
    """The facts by name, empty when they are none. Flags in one text become a set, memory a whole number of GiB.

    The kernel's count of its memory in kB differs between machines with equal memory, and from boot to boot.
    """
    if not isinstance(told, Mapping):
        return {}
    facts = {name: _comparable(value) for name, value in told.items() if isinstance(name, str) and value is not None}
    if isinstance(facts.get("flags"), str):
        facts["flags"] = frozenset(str(facts["flags"]).split())
    memory = facts.pop("memory_kb", None)
    if isinstance(memory, int | float) and not isinstance(memory, bool) and 0 < memory < _MOST_MEMORY:
        facts["memory_gib"] = round(memory / _KIB_OF_GIB)
    return facts


def is_guest(facts: Facts) -> bool:
    """Whether these tidied facts are those of a virtual machine."""
    flags = facts.get("flags")
    flagged = isinstance(flags, Collection) and not isinstance(flags, str) and "hypervisor" in flags
    return flagged or any(_says_guest(facts.get(name)) for name in ("virtual", "hypervisor"))


def are_alike(one: Facts, other: Facts) -> bool:
    """Whether two machines are of one known model, and equal in every fact that is told of either of them."""
    names = (one.keys() | other.keys()) - INDIVIDUAL
    return bool(one.get("uarch")) and all(name in one and name in other and one[name] == other[name] for name in names)


def _says_guest(told: object) -> bool:
    if isinstance(told, str):
        return told.strip().lower() not in _NO_GUEST
    return told == 1


def _comparable(value: object) -> object:
    return frozenset(map(str, value)) if isinstance(value, set | frozenset | list | tuple) else value
