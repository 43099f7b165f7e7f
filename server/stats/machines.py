"""The facts of a machine as they are told, made comparable: which of them count, and whether it is a guest."""

from collections.abc import Collection, Mapping

Facts = Mapping[str, object]

# Facts that tell which model a machine is: they separate any model from any other and explain nothing, but machines
# that differ in them are not the same.
MODEL = frozenset({"core_types", "cpu_kinds", "family", "midr", "model", "model_name", "stepping", "uarch"})
# Facts of the single machine, or those that may differ between the kernels of one comparison.
INDIVIDUAL = frozenset(
    {
        *("clock", "cmdline", "hostname", "hypervisor", "machine", "virtual", "virtualization", "doubts"),
        *("kernel_build_id", "kernel_release", "kernel_version"),
        *("fingerprint", "fingerprint_parts", "board"),
        # These in full differ between any two models: what may explain something is told once more as a number or word.
        *("alternatives", "caches", "frequency", "huge_pages"),
    }
)
NAMES = MODEL | INDIVIDUAL
# Facts come from agents: more memory is somebody's mistake.
_MOST_MEMORY = 1e18
# What is told of the hypervisor by machines that have none.
_NO_GUEST = frozenset({"", "0", "false", "no", "none"})
_KIB_OF_GIB = 1 << 20


def tidy(told: object) -> dict[str, object]:
    """The facts by name, empty when they are none. Flags in one text become a set, memory a whole number of GiB.

    Facts with names inside become facts of their own: mitigations.retbleed. Of a list of nodes their number counts.

    The kernel's count of its memory in kB differs between machines with equal memory, and from boot to boot.
    """
    if not isinstance(told, Mapping):
        return {}
    named = {name: value for name, value in told.items() if isinstance(name, str) and value is not None}
    facts = {name: _comparable(value) for name, value in _flat(named).items()}
    if isinstance(facts.get("flags"), str):
        facts["flags"] = frozenset(str(facts["flags"]).split())
    if isinstance(facts.get("nodes"), frozenset) and facts.pop("nodes"):
        facts["nodes"] = len(told["nodes"])
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


def _flat(named: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in named.items():
        if isinstance(value, Mapping) and name not in NAMES:
            inside = {f"{name}.{part}": one for part, one in value.items() if isinstance(part, str)}
            flat.update({part: one for part, one in inside.items() if one is not None})
        else:
            flat[name] = value
    return flat


def _says_guest(told: object) -> bool:
    if isinstance(told, str):
        return told.strip().lower() not in _NO_GUEST
    return told == 1


def _comparable(value: object) -> object:
    return frozenset(map(str, value)) if isinstance(value, set | frozenset | list | tuple) else value
