"""NUMA nodes: their CPUs, memory, distances, and what kind of memory they have."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_agent.probe.memory import node_kb
from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import as_cpus, as_number, cpu_list, number, numbered, text

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
