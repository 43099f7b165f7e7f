"""Memory, nodes, caches and cores."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_agent.probe.identity import Cpu, find_uarch
from tidemark_agent.probe.tree import Tree, as_cpus, as_number, cpu_list, number, numbered, raw_text, text

_TOTAL = re.compile(r"^MemTotal:\s*(\d{1,15}) kB", re.MULTILINE | re.ASCII)
_NODE_TOTAL = re.compile(r"^Node \d+ MemTotal:\s*(\d{1,15}) kB", re.MULTILINE | re.ASCII)
_PAGE = re.compile(r"^KernelPageSize:\s*(\d{1,6}) kB", re.MULTILINE | re.ASCII)
_CHOSEN = re.compile(r"\[([\w-]{1,40})\]", re.ASCII)
_THP = "sys/kernel/mm/transparent_hugepage"
# No architecture has more sizes of huge pages than fit here.
_MOST_SIZES = 32


@dataclass(frozen=True)
class HugePages:
    """One size of huge pages: how many there are and how many of them are free, in all and of each node."""

    kb: int
    pool: int
    free: int
    nodes: Mapping[str, Mapping[str, int]]


def total_kb(tree: Tree) -> int:
    found = _TOTAL.search(raw_text(tree, "proc/meminfo"))
    return int(found[1]) if found else 0


def node_kb(tree: Tree, node: int) -> int:
    found = _NODE_TOTAL.search(raw_text(tree, f"sys/devices/system/node/node{node}/meminfo"))
    return int(found[1]) if found else 0


def page_bytes(tree: Tree, arch: str) -> int | None:
    """The size of a base page: always 4 KiB on x86, elsewhere what the first mapping of a process says."""
    if arch in {"x86_64", "i686"}:
        return 4096
    found = _PAGE.search(raw_text(tree, "proc/self/smaps")) or _PAGE.search(raw_text(tree, "proc/1/smaps"))
    return int(found[1]) << 10 if found else None


def huge_pages(tree: Tree, nodes: tuple[int, ...]) -> tuple[HugePages, ...]:
    found = []
    for size in _sizes(tree, "sys/kernel/mm/hugepages"):
        pools = {}
        for node in nodes:
            where = f"sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB"
            pool = number(tree, f"{where}/nr_hugepages")
            if pool is not None:
                pools[str(node)] = {"pool": pool, "free": number(tree, f"{where}/free_hugepages") or 0}
        where = f"sys/kernel/mm/hugepages/hugepages-{size}kB"
        pool, free = number(tree, f"{where}/nr_hugepages"), number(tree, f"{where}/free_hugepages")
        found.append(HugePages(size, pool or 0, free or 0, pools))
    return tuple(found)


def transparent_huge_pages(tree: Tree) -> Mapping[str, str]:
    """The chosen policies: `enabled`, `defrag`, `shmem_enabled`, and `enabled-64kB` for each size that has its own."""
    files = {name: f"{_THP}/{name}" for name in ("enabled", "defrag", "shmem_enabled")}
    files |= {f"enabled-{size}kB": f"{_THP}/hugepages-{size}kB/enabled" for size in _sizes(tree, _THP)}
    chosen = {name: _CHOSEN.search(text(tree, path)) for name, path in files.items()}
    return {name: match[1] for name, match in chosen.items() if match}


def _sizes(tree: Tree, path: str) -> list[int]:
    """The sizes in kB that a directory has entries for: hugepages-2048kB."""
    names = (re.fullmatch(r"hugepages-(\d{1,9})kB", name, re.ASCII) for name in tree.names(path))
    return sorted(int(match[1]) for match in names if match)[:_MOST_SIZES]


_NODES = "sys/devices/system/node"
_CXL = "sys/bus/cxl/devices"
_TIERS = "sys/devices/virtual/memory_tiering"
# The kernel's largest MAX_NUMNODES.
_MOST_NODES = 1024
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})", re.ASCII)
_MEASURES = ("read_latency", "write_latency", "read_bandwidth", "write_bandwidth")


@dataclass(frozen=True)
class Node:
    """One NUMA node that is online. `kind` is what its memory is:

    `dram` (has CPUs of its own), `cxl` (behind a CXL region), `specific` (memory that the firmware set aside for a
    purpose: hmem), `cpuless` (no CPUs, and the system does not say what it is), `empty` (no memory).
    `distances` are to the nodes that are online, in their order. `initiators` are the nodes nearest to it and `access`
    their way to it as the firmware tells it: latencies in ns, bandwidths in MB/s. `tier` is None where there are none.
    """

    node: int
    cpus: str
    memory_kb: int
    kind: str
    distances: tuple[int, ...]
    initiators: str = ""
    access: Mapping[str, int] = field(default_factory=dict)
    tier: int | None = None


def node_numbers(tree: Tree) -> tuple[int, ...]:
    """The nodes that are online; none where the kernel does not know of nodes."""
    online = as_cpus(text(tree, f"{_NODES}/online"))
    present = numbered(tree, _NODES, "node")
    return tuple(node for node in present if node in online or not online)[:_MOST_NODES]


def nodes(tree: Tree) -> tuple[Node, ...]:
    numbers = node_numbers(tree)
    cxl, specific, tiers = _cxl_nodes(tree, numbers), _specific_nodes(tree), _tiers(tree)
    found = []
    for node in numbers:
        where = f"{_NODES}/node{node}"
        cpus, memory = as_cpus(text(tree, f"{where}/cpulist")), node_kb(tree, node)
        access = {name: number(tree, f"{where}/access0/initiators/{name}") for name in _MEASURES}
        found.append(
            Node(
                node=node,
                cpus=cpu_list(cpus),
                memory_kb=memory,
                kind=_kind(node, has_cpus=bool(cpus), memory_kb=memory, cxl=cxl, specific=specific),
                distances=_distances(text(tree, f"{where}/distance")),
                initiators=cpu_list(numbered(tree, f"{where}/access0/initiators", "node")),
                access={name: value for name, value in access.items() if value},
                tier=tiers.get(node),
            )
        )
    return tuple(found)


def _kind(node: int, *, has_cpus: bool, memory_kb: int, cxl: frozenset[int], specific: frozenset[int]) -> str:
    if not memory_kb:
        return "empty"
    if node in cxl:
        return "cxl"
    if node in specific:
        return "specific"
    return "dram" if has_cpus else "cpuless"


def _cxl_nodes(tree: Tree, numbers: tuple[int, ...]) -> frozenset[int]:
    """The nodes that CXL regions feed: through a DAX device, or as memory that the firmware itself put there."""
    found: set[int] = set()
    for region in (name for name in tree.names(_CXL) if re.fullmatch(r"(dax_)?region\d+", name)):
        for device in (name for name in tree.names(f"{_CXL}/{region}") if name.startswith("dax")):
            target = number(tree, f"{_CXL}/{region}/{device}/target_node")
            found |= {target} if target is not None else set()
        start = _hex(text(tree, f"{_CXL}/{region}/resource"))
        if start is not None:
            found |= _nodes_at(tree, numbers, start)
    return frozenset(found)


def _nodes_at(tree: Tree, numbers: tuple[int, ...], address: int) -> set[int]:
    """The nodes that have the block of memory at a physical address."""
    block_bytes = _hex(text(tree, "sys/devices/system/memory/block_size_bytes"))
    if not block_bytes:
        return set()
    block = f"memory{address // block_bytes}"
    return {node for node in numbers if tree.data(f"{_NODES}/node{node}/{block}/state")}


def _specific_nodes(tree: Tree) -> frozenset[int]:
    """The nodes of memory that the firmware marked as specific-purpose and the kernel gave back as memory."""
    found = set()
    for platform in (name for name in tree.names("sys/devices/platform") if re.fullmatch(r"hmem\.\d+", name)):
        where = f"sys/devices/platform/{platform}"
        for device in (name for name in tree.names(where) if re.fullmatch(r"dax\d+\.\d+", name)):
            target = number(tree, f"{where}/{device}/target_node")
            found |= {target} if target is not None else set()
    return frozenset(found)


def _tiers(tree: Tree) -> Mapping[int, int]:
    return {
        node: tier
        for tier in numbered(tree, _TIERS, "memory_tier")
        for node in as_cpus(text(tree, f"{_TIERS}/memory_tier{tier}/nodelist"))
    }


def _distances(told: str) -> tuple[int, ...]:
    values = [as_number(word) for word in told.split()[:_MOST_NODES]]
    return tuple(value for value in values if value is not None) if None not in values else ()


def _hex(told: str) -> int | None:
    match = _HEX.fullmatch(told)
    return int(match[1], 16) if match else None


_SIZE = re.compile(r"(\d{1,9})([KMG]?)", re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CPUS = "sys/devices/system/cpu"
# More caches of one CPU do not exist; a tree with more is somebody's mistake.
_MOST_INDEXES = 16


@dataclass(frozen=True)
class Cache:
    """Caches of one kind; sizes in bytes, 0 where unknown. `shared` lists the CPUs behind each of them."""

    level: int
    type: str
    bytes: int
    line_bytes: int
    ways: int
    shared: tuple[str, ...]


def caches(tree: Tree, cpus: Sequence[int]) -> tuple[Cache, ...]:
    """All kinds of caches, by level and type."""
    kinds: dict[tuple[int, str, int, int, int], dict[str, None]] = {}
    for cpu in cpus:
        for index in numbered(tree, f"{_CPUS}/cpu{cpu}/cache", "index")[:_MOST_INDEXES]:
            where = f"{_CPUS}/cpu{cpu}/cache/index{index}"
            level = number(tree, f"{where}/level")
            if level is None:
                continue
            key = (
                level,
                text(tree, f"{where}/type").lower(),
                _size(text(tree, f"{where}/size")),
                number(tree, f"{where}/coherency_line_size") or 0,
                number(tree, f"{where}/ways_of_associativity") or 0,
            )
            sharing = cpu_list(as_cpus(text(tree, f"{where}/shared_cpu_list")) or {cpu})
            kinds.setdefault(key, {})[sharing] = None
    return tuple(Cache(*key, tuple(kinds[key])) for key in sorted(kinds))


def sizes(found: Sequence[Cache]) -> Mapping[str, int]:
    """`l1d_bytes`, `l1i_bytes`, `l2_bytes` and `llc_bytes`: one cache of each, the largest if kinds of cores differ."""
    known: dict[str, int] = {}
    last = max((cache.level for cache in found), default=0)
    for cache in found:
        suffix = {"data": "d", "instruction": "i"}.get(cache.type, "")
        names = [f"l{cache.level}{suffix}_bytes"]
        if cache.level == last and last > 1 and cache.type != "instruction":
            names.append("llc_bytes")
        for name in names if cache.bytes else ():
            known[name] = max(known.get(name, 0), cache.bytes)
    return known


def _size(told: str) -> int:
    match = _SIZE.fullmatch(told)
    return int(match[1]) * _UNITS[match[2]] if match else 0


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
