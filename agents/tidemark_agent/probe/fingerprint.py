"""A hash of what a machine is, by part, to notice changes of its hardware and firmware between boots."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from tidemark_agent.probe.caches import Cache
from tidemark_agent.probe.cores import CpuKind
from tidemark_agent.probe.nodes import Node

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
