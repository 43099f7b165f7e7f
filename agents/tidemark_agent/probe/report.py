"""`tidemark-agent probe`: the facts for people, or all of them as JSON."""

import argparse
import json
import sys
from collections.abc import Iterator

from tidemark_agent.probe.facts import Facts, probe_system
from tidemark_agent.probe.nodes import Node

_NO_SYSTEM = 2
_MARGIN = 16
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Tables for people name the first few of many alike.
_MOST_SHOWN = 4


def run(options: argparse.Namespace) -> int:
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
