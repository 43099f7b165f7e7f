"""The caches of the CPUs that are online."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import as_cpus, cpu_list, number, numbered, text

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
