"""Kinds of cores: which microarchitectures a machine has, and which CPUs are of which."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_agent.probe.identity import Cpu
from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.uarchs import find_uarch
from tidemark_agent.probe.values import as_cpus, cpu_list, number, raw_text, text

# Intel's kinds have a performance counter unit each, whose directory names its CPUs.
_COUNTER_UNITS = ("core", "atom", "lowpower")
_DEBUG_KIND = re.compile(r"^cpu_type:\s*(\w{1,20})\s*$", re.MULTILINE)
# Elsewhere only the kernel's own view of the topology tells the kinds of cores of one model apart.
_DEBUG_KINDS = {"performance": "core", "efficiency": "atom"}
_LONGEST_NAME = 60


@dataclass(frozen=True)
class CoreKind:
    """One kind of core and the CPUs that are of it, as a CPU list."""

    name: str
    cpus: str


@dataclass(frozen=True)
class CpuKind:
    """CPUs that say the same about themselves; `flags` are those that not all kinds of this machine have."""

    uarch: str
    ids: str
    cpus: str
    microcode: str
    capacity: int | None
    flags: tuple[str, ...]


def core_kinds(tree: Tree, cpus: Sequence[Cpu]) -> tuple[CoreKind, ...]:
    """One kind "all", or one for each kind of core, the strongest first."""
    every = as_cpus(text(tree, "sys/devices/system/cpu/online")) or frozenset(cpu.number for cpu in cpus)
    names = core_names(tree, cpus)
    kinds = sorted(set(names.values()))
    if len(kinds) <= 1:
        return (CoreKind("all", cpu_list(every) or "0"),)
    members = {kind: [place for place, name in names.items() if name == kind] for kind in kinds}
    kinds.sort(key=lambda kind: _weakness(tree, members[kind], kind))
    return tuple(CoreKind(kind, cpu_list(members[kind])) for kind in kinds)


def core_names(tree: Tree, cpus: Sequence[Cpu]) -> Mapping[int, str]:
    """The microarchitecture of each CPU's core; one model with several kinds of core has several names."""
    kinds = _kinds(tree, cpus)
    if len({kinds.get(cpu.number, "") for cpu in cpus}) <= 1:
        return {cpu.number: cpu.uarch for cpu in cpus}
    return {cpu.number: _core_name(cpu, kinds.get(cpu.number, "")) for cpu in cpus}


def machine_uarch(tree: Tree, cpus: Sequence[Cpu]) -> str:
    """The machine's microarchitecture: its CPUs' one name, or the names of its core types, strongest first, with _."""
    names = {cpu.uarch for cpu in cpus}
    if len(names) <= 1:
        return names.pop() if names else Cpu(0).uarch
    return "_".join(kind.name for kind in core_kinds(tree, cpus))[:_LONGEST_NAME]


def cpu_kinds(tree: Tree, cpus: Sequence[Cpu]) -> tuple[CpuKind, ...]:
    """CPUs by what they say about themselves, in the order of their lowest number."""
    names = core_names(tree, cpus)
    common = common_flags(cpus)
    alike: dict[tuple[str, str, str, frozenset[str]], list[int]] = {}
    for cpu in cpus:
        alike.setdefault((names[cpu.number], cpu.ids, cpu.microcode, cpu.flags), []).append(cpu.number)
    return tuple(
        CpuKind(
            uarch=uarch,
            ids=ids,
            cpus=cpu_list(members),
            microcode=microcode,
            capacity=number(tree, f"sys/devices/system/cpu/cpu{members[0]}/cpu_capacity"),
            flags=tuple(sorted(flags - common)),
        )
        for (uarch, ids, microcode, flags), members in alike.items()
    )


def common_flags(cpus: Sequence[Cpu]) -> frozenset[str]:
    """The flags that every CPU has."""
    sets = {cpu.flags for cpu in cpus}
    return frozenset.intersection(*sets) if sets else frozenset()


def _kinds(tree: Tree, cpus: Sequence[Cpu]) -> Mapping[int, str]:
    """The kernel's name of the kind of each CPU's core, where it tells kinds apart."""
    found = {cpu: kind for kind in _COUNTER_UNITS for cpu in as_cpus(text(tree, f"sys/devices/cpu_{kind}/cpus"))}
    if found or any(cpu.midr for cpu in cpus):
        return found
    for cpu in cpus:
        told = _DEBUG_KIND.search(raw_text(tree, f"sys/kernel/debug/x86/topo/cpus/{cpu.number}"))
        if told and told[1] in _DEBUG_KINDS:
            found[cpu.number] = _DEBUG_KINDS[told[1]]
    return found


def _core_name(cpu: Cpu, kind: str) -> str:
    known = find_uarch(cpu.vendor, cpu.family, cpu.model, cpu.stepping)
    named = known.cores.get(kind) if known else None
    return named or f"{cpu.uarch}-{kind or 'other'}"


def _weakness(tree: Tree, members: Sequence[int], name: str) -> tuple[int, int, str]:
    """Sorts strong kinds first: by capacity, then by clock, then by name."""
    capacity = number(tree, f"sys/devices/system/cpu/cpu{members[0]}/cpu_capacity") or 0
    fastest = number(tree, f"sys/devices/system/cpu/cpu{members[0]}/cpufreq/cpuinfo_max_freq") or 0
    return -capacity, -fastest, name
