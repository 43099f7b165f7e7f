"""All that the agent can say about a system, as one value."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark_agent.probe import clocks, kernel, memory, virtual
from tidemark_agent.probe.caches import Cache, caches, sizes
from tidemark_agent.probe.clocks import Frequency
from tidemark_agent.probe.cores import CoreKind, CpuKind, common_flags, core_kinds, cpu_kinds, machine_uarch
from tidemark_agent.probe.features import Alternatives, alternatives, unnamed_flags
from tidemark_agent.probe.fingerprint import fingerprint, fingerprint_parts
from tidemark_agent.probe.firmware import board, firmware
from tidemark_agent.probe.identity import Cpu, online_cpus
from tidemark_agent.probe.memory import HugePages
from tidemark_agent.probe.nodes import Node, nodes
from tidemark_agent.probe.tree import Directory, Texts, Tree
from tidemark_agent.probe.values import as_cpus, cpu_list, text


@dataclass(frozen=True)
class Facts:
    """What a booted system says about itself; `clock` is wall unless the boot driver counts instructions.

    `virtual` is what is proved. A machine that is not and has `doubts` is not called physical before a person says so.

    Where it does not tell, texts and lists are empty, family, model and stepping -1, sizes and switches None.
    """

    uarch: str
    vendor: str
    family: int
    model: int
    stepping: int
    model_name: str
    flags: tuple[str, ...]
    virtual: bool
    hypervisor: str
    clock: str
    kernel_release: str
    cmdline: str
    memory_kb: int
    cpus: int
    core_types: tuple[CoreKind, ...]
    arch: str = ""
    midr: str = ""
    microcode: str = ""
    cpu_kinds: tuple[CpuKind, ...] = ()
    alternatives: Alternatives = field(default_factory=lambda: Alternatives({}))
    l1d_bytes: int | None = None
    l1i_bytes: int | None = None
    l2_bytes: int | None = None
    llc_bytes: int | None = None
    caches: tuple[Cache, ...] = ()
    page_bytes: int | None = None
    nodes: tuple[Node, ...] = ()
    memory_kinds: tuple[str, ...] | None = None
    huge_pages: tuple[HugePages, ...] = ()
    thp: Mapping[str, str] = field(default_factory=dict)
    frequency: Frequency = field(default_factory=Frequency)
    governor: str = ""
    boost: bool | None = None
    smt: str = ""
    mitigations: Mapping[str, str] = field(default_factory=dict)
    preemption: str = ""
    kernel_version: str = ""
    kernel_build_id: str = ""
    virtualization: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    firmware: Mapping[str, str] = field(default_factory=dict)
    board: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    fingerprint_parts: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def facts_from(
    *,
    cpuinfo: str,
    meminfo: str,
    cmdline: str,
    release: str,
    online: str = "",
    hypervisor: str = "",
    clock: str = "wall",
) -> Facts:
    """Facts from the texts of the files in /proc and /sys, wherever they came from."""
    files = {
        "proc/cpuinfo": cpuinfo,
        "proc/meminfo": meminfo,
        "proc/cmdline": cmdline,
        "proc/sys/kernel/osrelease": release,
        "sys/devices/system/cpu/online": online,
    }
    return facts_of(Texts(files), told_by_driver=hypervisor, clock=clock)


def probe_system(root: Path) -> Facts:
    """Facts about the system whose /proc and /sys are below `root`."""
    return facts_of(Directory(root), detected=virtual.detected(root))


def facts_of(tree: Tree, *, detected: str = "", told_by_driver: str = "", clock: str = "wall") -> Facts:
    """Facts about the system of a tree. `detected` is what a program of the system itself said of its hypervisor."""
    cpus = online_cpus(tree)
    first = cpus[0] if cpus else Cpu(0)
    arch, cmdline, flags = kernel.architecture(tree), kernel.command_line(tree), common_flags(cpus)
    devices = virtual.pci_devices(tree)
    hints = dict(virtual.hints(tree, arch=arch, cpus=cpus, devices=devices))
    hints |= {"detected": detected} if detected else {}
    hints |= {"driver": told_by_driver} if told_by_driver else {}
    plain = Facts(
        uarch=machine_uarch(tree, cpus),
        vendor=first.vendor,
        family=first.family,
        model=first.model,
        stepping=first.stepping,
        model_name=first.model_name,
        flags=_ordered_flags(tree, flags),
        virtual=bool(hints),
        hypervisor=virtual.hypervisor_name(hints),
        clock=clock,
        kernel_release=text(tree, "proc/sys/kernel/osrelease"),
        cmdline=cmdline,
        memory_kb=memory.total_kb(tree),
        cpus=len(cpus),
        core_types=core_kinds(tree, cpus),
        arch=arch,
        midr=first.ids if first.midr else "",
        virtualization=hints,
        doubts={} if hints else virtual.doubts(tree, arch=arch, cpus=cpus, devices=devices),
        alternatives=alternatives(tree, flags, arch=arch, cmdline=cmdline),
    )
    return _with_fingerprint(tree, _with_machine(_with_kernel(plain, tree), tree, cpus))


def _ordered_flags(tree: Tree, flags: frozenset[str]) -> tuple[str, ...]:
    unnamed = {name for name, has in unnamed_flags(tree, flags).items() if has}
    return tuple(sorted(flags | unnamed))


def _with_kernel(facts: Facts, tree: Tree) -> Facts:
    version = kernel.version(tree)
    return replace(
        facts,
        kernel_version=version,
        kernel_build_id=kernel.build_id(tree),
        preemption=kernel.preemption(tree, version, facts.cmdline),
        mitigations=kernel.mitigations(tree),
        thp=memory.transparent_huge_pages(tree),
        page_bytes=memory.page_bytes(tree, facts.arch),
        frequency=(frequency := clocks.frequency(tree)),
        governor=frequency.governor,
        boost=clocks.boost(tree),
        smt=clocks.smt(tree),
    )


def _with_machine(facts: Facts, tree: Tree, cpus: tuple[Cpu, ...]) -> Facts:
    found = caches(tree, [cpu.number for cpu in cpus])
    size = sizes(found)
    members = nodes(tree)
    return replace(
        facts,
        microcode=", ".join(sorted({cpu.microcode for cpu in cpus} - {""})),
        cpu_kinds=cpu_kinds(tree, cpus),
        l1d_bytes=size.get("l1d_bytes"),
        l1i_bytes=size.get("l1i_bytes"),
        l2_bytes=size.get("l2_bytes"),
        llc_bytes=size.get("llc_bytes"),
        caches=found,
        nodes=members,
        memory_kinds=tuple(sorted({node.kind for node in members} - {"empty"})) or None,
        huge_pages=memory.huge_pages(tree, tuple(node.node for node in members)),
        firmware=firmware(tree),
        board=board(tree),
    )


def _with_fingerprint(tree: Tree, facts: Facts) -> Facts:
    parts = fingerprint_parts(
        kinds=facts.cpu_kinds,
        present=cpu_list(as_cpus(text(tree, "sys/devices/system/cpu/present"))),
        caches=facts.caches,
        memory_kb=facts.memory_kb,
        nodes=facts.nodes,
        firmware=facts.firmware,
        board=facts.board,
    )
    return replace(facts, fingerprint=fingerprint(parts), fingerprint_parts=parts)
