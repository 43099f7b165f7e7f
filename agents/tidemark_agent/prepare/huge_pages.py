"""Pools of huge pages for a case: per size, of the whole machine or node by node, with as many free as wanted."""

import re
from collections.abc import Mapping
from typing import Any

from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.model import CannotMeasureError
from tidemark_agent.prepare.wishes import Want, Wish

_MACHINE = "sys/kernel/mm/hugepages"
_NODES = "sys/devices/system/node"
_SIZE = re.compile(r"[1-9]\d{0,8}")
_NODE = re.compile(r"\d{1,4}")
_MOST_PAGES = 1 << 28


def huge_pages(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    """`{"2048": 64}` (kB: pages) or `{"2048": {"0": 64, "1": 64}}` (kB: node: pages); raises CannotMeasureError."""
    if not isinstance(value, Mapping):
        raise CannotMeasureError(f"the case wants huge_pages = {value!r}: a table of sizes was expected")
    return tuple(_pool(str(size), pages, files) for size, pages in value.items())


def _pool(size: str, pages: Any, files: KernelFiles) -> Wish:
    if not _SIZE.fullmatch(size):
        raise CannotMeasureError(f"the case wants huge pages of {size!r} kB")
    per_node = isinstance(pages, Mapping)
    wanted = {str(node): _count(count) for node, count in pages.items()} if per_node else {"": _count(pages)}
    if not all(node == "" or _NODE.fullmatch(node) for node in wanted):
        raise CannotMeasureError(f"the case wants huge pages on nodes {sorted(wanted)}")
    parts = []
    for node, count in wanted.items():
        pool = _directory(size, node)
        number = files.text(f"{pool}/nr_hugepages")
        if not number.isdecimal():
            where = f" on node {node}" if node else ""
            raise CannotMeasureError(f"huge-pages: there are none of {size} kB{where} in this kernel")
        used = int(number) - int(files.text(f"{pool}/free_hugepages") or number)
        parts.append(Want("pool", f"{pool}/nr_hugepages", str(used + count)))
    text = " ".join(f"node{node}={count}" if node else str(count) for node, count in wanted.items())
    nodes = () if per_node else _each_node(size, files)
    return Wish("huge-pages", f"{text} of {size} kB", (*nodes, *parts), absent_is_fine=False)


def _each_node(size: str, files: KernelFiles) -> tuple[Want, ...]:
    """What each node has now: the kernel spreads a change of the machine's pool, and does not take it back so."""
    nodes = list(files.names(_NODES, f"node[0-9]*/hugepages/hugepages-{size}kB/nr_hugepages"))
    return tuple(Want("pool", target, "", dependent=True) for target in nodes) if len(nodes) > 1 else ()


def _directory(size: str, node: str) -> str:
    return f"{_NODES}/node{node}/hugepages/hugepages-{size}kB" if node else f"{_MACHINE}/hugepages-{size}kB"


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PAGES:
        raise CannotMeasureError(f"the case wants {value!r} huge pages")
    return value
