"""Facts and settings of machines as lines for people: whatever an agent sent becomes short strings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any, Final

from server.lab.hosts.probes import OF_ONE_BOOT

_SIZE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
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
    for unit, name in _SIZE_UNITS:
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


_LONGEST_SETTING = 300
# Settings of a machine; those that single cases ask for are in the stored conditions.
_MOST_ROWS = 100
# Of one boot; an agent knows some dozens.
_MOST_COMPARED = 300


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting of the machine in a boot; `outcome` is set, kept, unavailable or tolerated."""

    name: str
    wanted: str
    before: str
    after: str
    outcome: str
    note: str


def readable_settings(settings: object) -> tuple[SettingRow, ...]:
    """`settings` as the conditions of a boot hold them."""
    return tuple(islice(_rows(settings), _MOST_ROWS))


def differing_settings(of_boots: Iterable[object]) -> tuple[str, ...]:
    """Names of the settings that not all of these boots had alike."""
    boots = [{row.name: astuple(row)[3:5] for row in islice(_rows(settings), _MOST_COMPARED)} for settings in of_boots]
    names = sorted({name for boot in boots for name in boot})
    return named([name for name in names if any(boot.get(name) != boots[0].get(name) for boot in boots)])


def _rows(settings: object) -> Iterator[SettingRow]:
    for setting in settings if isinstance(settings, list) else ():
        if isinstance(setting, Mapping) and "case" not in setting:
            yield SettingRow(*(_setting_text(setting, name) for name in SettingRow.__slots__))


def _setting_text(setting: Mapping[str, Any], name: str) -> str:
    return str(setting.get(name, ""))[:_LONGEST_SETTING]
