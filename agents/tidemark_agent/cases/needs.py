"""What a case needs of the machine: which words there are for it, and whether it is here.

A need that is not met makes the case `skipped` with the reason; that is no fault of kernel, benchmark or agent.
"""

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark_agent.cases.numbers import parse_cpus
from tidemark_agent.probe import CoreKind

_NODES = "sys/devices/system/node"
_MIB_KB = 1024


def check_needs(needs: dict[str, Any]) -> dict[str, Any]:
    """`needs` if each is a known word with a value of the right kind; raises ValueError."""
    for name, value in needs.items():
        kind, _ = _NEEDS.get(name, (None, None))
        if kind is None:
            raise ValueError(f"unknown need {name!r}: there are {', '.join(sorted(_NEEDS))}")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"the need {name} is {value!r}")
    return needs


def unmet(needs: Mapping[str, Any], core: CoreKind, root: Path) -> str:
    """Why this machine cannot run a case with these needs, or "". `programs` are looked for elsewhere."""
    for name, value in needs.items():
        _, look = _NEEDS[name]
        problem = look(value, core, root) if look else ""
        if problem:
            return problem
    return ""


def _arch(wanted: list[str], _core: CoreKind, _root: Path) -> str:
    here = platform.machine()
    return "" if here in wanted else f"needs {' or '.join(wanted)}, this machine is {here}"


def _cpus(wanted: int, core: CoreKind, _root: Path) -> str:
    count = len(parse_cpus(core.cpus))
    return "" if count >= wanted else f"needs {wanted} CPUs to measure on, there are {count}"


def _nodes(wanted: int, _core: CoreKind, root: Path) -> str:
    count = sum(1 for memory in _node_memory(root).values() if memory)
    return "" if count >= wanted else f"needs {wanted} NUMA nodes with memory, there are {count}"


def _node_ids(wanted: list[str], _core: CoreKind, root: Path) -> str:
    memory = _node_memory(root)
    missing = sorted({node for node in wanted if not memory.get(node)})
    return f"needs memory on NUMA node {missing[0]}" if missing else ""


def _cpuless_node(wanted: bool, _core: CoreKind, root: Path) -> str:  # noqa: FBT001 (the value of the need)
    lists = [
        _read(root / _NODES / f"node{node}/cpulist").strip() for node, memory in _node_memory(root).items() if memory
    ]
    return "needs a NUMA node without CPUs" if wanted and all(lists) else ""


def _memory_mb(wanted: int, _core: CoreKind, root: Path) -> str:
    available = kilobytes(_read(root / "proc/meminfo"), "MemAvailable") // _MIB_KB
    return "" if available >= wanted else f"needs {wanted} MiB of memory, {available} MiB are available"


def _huge_pages_kb(wanted: list[int], _core: CoreKind, root: Path) -> str:
    missing = [size for size in wanted if not (root / f"sys/kernel/mm/hugepages/hugepages-{size}kB").is_dir()]
    return f"needs huge pages of {missing[0]} kB, which this kernel does not have" if missing else ""


def _thp_kb(wanted: list[int], _core: CoreKind, root: Path) -> str:
    folders = root / "sys/kernel/mm/transparent_hugepage"
    missing = [size for size in wanted if not (folders / f"hugepages-{size}kB").is_dir()]
    return f"needs folios of {missing[0]} kB for programs, which this kernel does not have" if missing else ""


def _root_user(wanted: bool, _core: CoreKind, _root: Path) -> str:  # noqa: FBT001 (the value of the need)
    return "needs to run as root" if wanted and os.geteuid() != 0 else ""


def disk_problem(wanted_mb: int, directory: Path) -> str:
    free = shutil.disk_usage(directory).free // 1024**2
    return "" if free >= wanted_mb else f"needs {wanted_mb} MiB of disk space, {free} MiB are free"


def kilobytes(meminfo: str, name: str) -> int:
    """The value of one line of /proc/meminfo; 0 if it is not there."""
    for line in meminfo.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if key == name and words and words[0].isdecimal():
            return int(words[0])
    return 0


def _node_memory(root: Path) -> dict[str, int]:
    """MemTotal in kB of each online node by its number."""
    found = {}
    for place in (root / _NODES).glob("node[0-9]*"):
        lines = [line.split() for line in _read(place / "meminfo").splitlines()]
        # Node 0 MemTotal:  1007656 kB
        sizes = [words[3] for words in lines if len(words) > 3 and words[2] == "MemTotal:" and words[3].isdecimal()]  # noqa: PLR2004 (the words of a line)
        found[place.name.removeprefix("node")] = int(sizes[0]) if sizes else 0
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# The kind of value and how it is looked for; None: cases/programs.py and cases/room.py do.
_NEEDS: Mapping[str, tuple[type, Callable[[Any, CoreKind, Path], str] | None]] = {
    "arch": (list, _arch),
    "cpus": (int, _cpus),
    "nodes": (int, _nodes),
    "node_ids": (list, _node_ids),
    "cpuless_node": (bool, _cpuless_node),
    "memory_mb": (int, _memory_mb),
    "huge_pages_kb": (list, _huge_pages_kb),
    "thp_kb": (list, _thp_kb),
    "root": (bool, _root_user),
    "disk_mb": (int, None),
    "programs": (list, None),
    "pinned": (list, None),
}
