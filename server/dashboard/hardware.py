"""Caches, nodes and other parts of a machine as lines for people; of any other shape there are no lines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SIDES = {"data": "d", "instruction": "i"}
# Of many caches of one kind the first few show which CPUs share one.
_MOST_SHARED = 4
# Larger numbers are nobody's memory.
_LARGEST = 1 << 60


def lines(name: str, value: Any) -> tuple[str, ...]:
    """The lines of the fact `name`, none if it has no lines of its own or is not what a probe would tell."""
    write = _WRITERS.get(name)
    if write is None:
        return ()
    try:
        return tuple(write(value))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()


def size(count: Any) -> str:
    """Bytes as people write them; ValueError for what is no size."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < _LARGEST:
        raise ValueError("no size")
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{count} B"


def _caches(value: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"L{cache['level']}{_SIDES.get(cache['type'], '')}: {len(cache['shared'])} x {size(cache['bytes'])}, "
        f"{cache['ways']} ways, lines of {size(cache['line_bytes'])}, CPUs {_few(cache['shared'])}"
        for cache in value
    ]


def _few(shared: Sequence[str]) -> str:
    more = f" | {len(shared) - _MOST_SHARED} more" if len(shared) > _MOST_SHARED else ""
    return " | ".join(shared[:_MOST_SHARED]) + more


def _nodes(value: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"node {node['node']}: {node['kind']}, {size(node['memory_kb'] << 10)}, "
        + (f"CPUs {node['cpus']}" if node["cpus"] else "no CPUs")
        + f", distances {' '.join(map(str, node['distances']))}"
        for node in value
    ]


def _kinds(value: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"CPUs {kind['cpus']}: {kind['uarch']}, {kind['ids']}"
        + (f", microcode {kind['microcode']}" if kind["microcode"] else "")
        + (f", and {' '.join(kind['flags'])}" if kind["flags"] else "")
        for kind in value
    ]


def _huge_pages(value: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{size(pool['kb'] << 10)}: {pool['pool']}, {pool['free']} of them free" for pool in value]


def _chosen_by(value: Mapping[str, Any]) -> list[str]:
    said = [name if has else f"no {name}" for name, has in value["chosen_by"].items()]
    cleared = [f"cleared: {' '.join(value['cleared'])}"] if value["cleared"] else []
    return [*filter(None, [", ".join(said)]), *cleared, *value["detected"]]


def _mapping(value: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {said}" for name, said in value.items() if said is not None and said not in ("", {})]


def _mitigations(value: Mapping[str, Any]) -> list[str]:
    """Those that matter first; what does not affect the machine stands in one line."""
    spared = [name for name, said in value.items() if said == "Not affected"]
    told = [f"{name}: {said}" for name, said in value.items() if said != "Not affected"]
    return [*told, f"not affected: {', '.join(spared)}"] if spared else told


_WRITERS: Final[Mapping[str, Callable[[Any], list[str]]]] = {
    "alternatives": _chosen_by,
    "board": _mapping,
    "caches": _caches,
    "cpu_kinds": _kinds,
    "firmware": _mapping,
    "frequency": _mapping,
    "huge_pages": _huge_pages,
    "mitigations": _mitigations,
    "nodes": _nodes,
    "thp": _mapping,
    "virtualization": _mapping,
}
