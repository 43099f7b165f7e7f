"""All facts of a system, their fingerprint, and `probe`, which prints them."""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark_agent.probe import hardware, kernel, virtual
from tidemark_agent.probe.hardware import (
    Cache,
    CoreKind,
    CpuKind,
    HugePages,
    Node,
    caches,
    common_flags,
    core_kinds,
    cpu_kinds,
    machine_uarch,
    nodes,
    sizes,
)
from tidemark_agent.probe.identity import Cpu, online_cpus
from tidemark_agent.probe.kernel import Alternatives, Frequency, alternatives, unnamed_flags
from tidemark_agent.probe.tree import Directory, Texts, Tree, as_cpus, cpu_list, text
from tidemark_agent.probe.virtual import board, firmware

# Made new whenever something else goes into the hash: fingerprints of different schemes cannot be compared.
SCHEME = "2"
# Half of SHA-256 tells machines apart and leaves a line readable.
_DIGITS = 32
# The kernel keeps a part of the memory for itself, and not always the same: sizes count in eighths of a power of two.
_STEPS = 8


def fingerprint_parts(
    *,
    kinds: Sequence[CpuKind],
    present: str,
    caches: Sequence[Cache],
    memory_kb: int,
    nodes: Sequence[Node],
    firmware: Mapping[str, str],
    board: Mapping[str, str],
) -> Mapping[str, str]:
    """Hashes of `cpu`, `memory`, `firmware` (with microcode) and `board`.

    Only what the hardware and firmware decide goes in: no flags, governors, or CPUs that are online, for these are up
    to the kernel and its command line. (Those that hide hardware, such as nr_cpus= and mem=, do show.)
    """
    told: dict[str, object] = {
        "cpu": {
            # What the table calls them is no hardware: a name that it learns must not look like another CPU.
            "kinds": sorted({kind.ids for kind in kinds}),
            "present": present,
            "caches": sorted(
                {(cache.level, cache.type, cache.bytes, cache.line_bytes, cache.ways) for cache in caches}
            ),
        },
        "memory": {
            "total": rounded_kb(memory_kb),
            "nodes": [(node.node, node.kind, node.distances) for node in nodes],
        },
        "firmware": {"told": dict(firmware), "microcode": sorted({kind.microcode for kind in kinds})},
        "board": dict(board),
    }
    return {name: _hash(part) for name, part in told.items()}


def fingerprint(parts: Mapping[str, str]) -> str:
    """The hash over all parts, with the number of the scheme in front: 1-0f3a..."""
    return f"{SCHEME}-{_hash(parts)}"


def rounded_kb(memory_kb: int) -> int:
    """The size upwards to the next eighth of a power of two: what the DIMMs have, not what the kernel left of it."""
    step = max(1, (1 << memory_kb.bit_length() - 1) // _STEPS) if memory_kb > 0 else 1
    return -(-memory_kb // step) * step


def _hash(told: object) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:_DIGITS]


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
        memory_kb=hardware.total_kb(tree),
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
        thp=hardware.transparent_huge_pages(tree),
        page_bytes=hardware.page_bytes(tree, facts.arch),
        frequency=(frequency := kernel.frequency(tree)),
        governor=frequency.governor,
        boost=kernel.boost(tree),
        smt=kernel.smt(tree),
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
        huge_pages=hardware.huge_pages(tree, tuple(node.node for node in members)),
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


_NO_SYSTEM = 2
_MARGIN = 16
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Tables for people name the first few of many alike.
_MOST_SHOWN = 4


def print_facts(options: argparse.Namespace) -> int:
    """Print the facts of the system below `options.root`; `options.json` for all of them. 2 if there is none."""
    if not (options.root / "proc").is_dir():
        print(f"tidemark-agent: {options.root} holds no system: there is no proc in it", file=sys.stderr)
        return _NO_SYSTEM
    facts = probe_system(options.root)
    print(json.dumps(facts.as_json(), indent=2) if options.json else table(facts))
    return 0


def table(facts: Facts) -> str:
    """One line for each thing that is known."""
    return "\n".join(f"{title:<{_MARGIN}}{said}" for title, said in _lines(facts) if said)


def size(count: int) -> str:
    """Bytes as people write them, with at most one decimal: 1.5 MiB."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{count} B"


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "machine", f"{facts.uarch} ({_kind(facts)})"
    for said in facts.doubts.values():
        yield "doubt", said
    yield "CPU", _cpu(facts)
    yield "CPUs", f"{facts.cpus}{f', SMT {facts.smt}' if facts.smt else ''}"
    if len(facts.core_types) > 1:
        for kind in facts.core_types:
            yield "core type", f"{kind.name}: CPUs {kind.cpus}"
    yield "copies by", ", ".join(name if has else f"no {name}" for name, has in facts.alternatives.chosen_by.items())
    yield "cleared", ", ".join(facts.alternatives.cleared)
    yield "microcode", facts.microcode
    yield "clock", _clock(facts)
    for cache in facts.caches:
        what = {"data": "d", "instruction": "i"}.get(cache.type, "")
        ways = f", {cache.ways} ways" if cache.ways else ""
        yield (
            f"L{cache.level}{what} cache",
            f"{len(cache.shared)} x {size(cache.bytes)}{ways}, of {_some(cache.shared)}",
        )
    yield "memory", f"{size(facts.memory_kb << 10)}{f', pages of {size(facts.page_bytes)}' if facts.page_bytes else ''}"
    for node in facts.nodes:
        yield f"node {node.node}", _node(node)
    yield "huge pages", ", ".join(f"{size(pool.kb << 10)}: {pool.pool} ({pool.free} free)" for pool in facts.huge_pages)
    yield "THP", ", ".join(f"{name} {facts.thp[name]}" for name in ("enabled", "defrag") if name in facts.thp)
    yield from _software(facts)


def _software(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "kernel", f"{facts.kernel_release} {facts.kernel_version}".strip()
    yield "build id", facts.kernel_build_id
    yield "preemption", facts.preemption
    yield "command line", facts.cmdline
    for name, said in facts.mitigations.items():
        if said != "Not affected":
            yield "mitigation", f"{name}: {said}"
    yield "firmware", " ".join(facts.firmware.values())
    yield "board", " ".join(dict.fromkeys(facts.board.values()))
    yield "hypervisor by", ", ".join(f"{who} ({said})" for who, said in facts.virtualization.items())
    yield "fingerprint", facts.fingerprint


def _kind(facts: Facts) -> str:
    if facts.virtual:
        return f"virtual, {facts.hypervisor}"
    return "virtual or physical: not known" if facts.doubts else "physical"


def _cpu(facts: Facts) -> str:
    kinds = dict.fromkeys(kind.ids for kind in facts.cpu_kinds)
    return " ".join(filter(None, (facts.vendor, facts.model_name, ", ".join(kinds))))


def _clock(facts: Facts) -> str:
    frequency = facts.frequency
    said = [frequency.driver, f"governor {frequency.governor}" if frequency.governor else ""]
    if frequency.min_khz is not None and frequency.max_khz is not None:
        said.append(f"{frequency.min_khz / 1e6:.2f} to {frequency.max_khz / 1e6:.2f} GHz")
    if facts.boost is not None:
        said.append(f"boost {'on' if facts.boost else 'off'}")
    return ", ".join(filter(None, said))


def _node(node: Node) -> str:
    cpus = f"CPUs {node.cpus}" if node.cpus else "no CPUs"
    tier = "" if node.tier is None else f", tier {node.tier}"
    distances = f", distances {' '.join(map(str, node.distances))}" if node.distances else ""
    return f"{node.kind}, {size(node.memory_kb << 10)}, {cpus}{distances}{tier}"


def _some(shared: tuple[str, ...]) -> str:
    more = f" and {len(shared) - _MOST_SHOWN} more" if len(shared) > _MOST_SHOWN else ""
    return f"CPUs {' | '.join(shared[:_MOST_SHOWN])}{more}"
