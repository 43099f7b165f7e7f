"""Facts from machines as text: whatever an agent sent, a page gets short strings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.dashboard.hardware import lines, size
from server.lab.facts import OF_ONE_BOOT

_LONGEST = 4000
# Lines that a fact may have on a page, and facts; the rest is in the API.
_MOST_LINES = 100
_MOST_FACTS = 200
# Names of facts that boots disagree in, and their length.
_MOST_NAMED, _LONGEST_NAME = 40, 60
_TITLES = {
    "uarch": "microarchitecture",
    "arch": "architecture",
    "vendor": "vendor",
    "family": "family",
    "model": "model",
    "stepping": "stepping",
    "midr": "MIDR",
    "model_name": "CPU",
    "virtual": "virtual",
    "hypervisor": "hypervisor",
    "virtualization": "virtual as seen by",
    "cpus": "CPUs",
    "smt": "SMT",
    "core_types": "core types",
    "cpu_kinds": "CPUs by kind",
    "microcode": "microcode",
    "clock": "clock",
    "caches": "caches",
    "memory_kb": "memory (kB)",
    "nodes": "NUMA nodes",
    "page_bytes": "page size",
    "huge_pages": "huge pages",
    "thp": "THP",
    "governor": "governor",
    "frequency": "frequency",
    "boost": "boost",
    "preemption": "preemption",
    "mitigations": "mitigations",
    "alternatives": "copies and clears by",
    "kernel_release": "kernel release",
    "kernel_version": "kernel version",
    "kernel_build_id": "kernel build id",
    "cmdline": "kernel command line",
    "firmware": "firmware",
    "board": "board",
    "fingerprint": "fingerprint",
    "flags": "CPU flags",
}
# Told once more in other facts, for programs.
_UNSHOWN = frozenset({"fingerprint_parts", "l1d_bytes", "l1i_bytes", "l2_bytes", "llc_bytes", "memory_kinds"})
_SIZES = frozenset({"page_bytes"})


@dataclass(frozen=True, slots=True)
class Fact:
    title: str
    text: str
    # Long lists (CPU flags) stand in a fold of their own.
    count: int = 0
    # Facts with parts have a line for each instead of the text.
    lines: tuple[str, ...] = ()


def readable_facts(facts: object) -> tuple[Fact, ...]:
    """The known facts first, in the order people ask for them, then all others by name."""
    if not isinstance(facts, Mapping):
        return ()
    known = [name for name in _TITLES if name in facts]
    others = sorted(str(name) for name in facts if name not in _TITLES and name not in _UNSHOWN)
    shown = [name for name in [*known, *others] if facts.get(name) not in ([], {})][:_MOST_FACTS]
    return tuple(_fact(name, facts.get(name)) for name in shown)


def differing_facts(every: Sequence[object]) -> tuple[str, ...]:
    """Titles of the facts in which the boots of one session disagree, but for what is each boot's own."""
    seen = [dict(facts) for facts in every if isinstance(facts, Mapping) and facts]
    names = sorted({str(name) for facts in seen for name in facts} - OF_ONE_BOOT - _UNSHOWN)
    differing = [name for name in names[:_MOST_FACTS] if any(facts.get(name) != seen[0].get(name) for facts in seen)]
    return named([_TITLES.get(name, name) for name in differing], beyond=len(names[_MOST_FACTS:]))


def named(names: Sequence[str], *, beyond: int = 0) -> tuple[str, ...]:
    """The first of these names, each cut, and how many more there are; `beyond` were not looked at."""
    more = len(names[_MOST_NAMED:])
    told = [f"{more} more"] if more else []
    told += [f"perhaps some of {beyond} others"] if beyond else []
    return (*(name[:_LONGEST_NAME] for name in names[:_MOST_NAMED]), *told)


def _fact(name: str, value: object) -> Fact:
    title = _TITLES.get(name, name[:_LONGEST_NAME])
    written = tuple(_cut(line) for line in lines(name, value)[:_MOST_LINES])
    if written:
        return Fact(title, "", lines=written)
    if name in _SIZES and isinstance(value, int) and 0 < value < 1 << 40:
        return Fact(title, size(value))
    if isinstance(value, list):
        return Fact(title, _text(value), count=len(value))
    return Fact(title, _text(value))


def _text(value: object) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = " ".join(_text(item) for item in value)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name} {_text(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    else:
        text = "" if value is None else str(value)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
