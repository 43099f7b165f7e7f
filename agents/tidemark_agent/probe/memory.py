"""Huge pages, transparent huge pages, and the size of a page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import number, raw_text, text

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
