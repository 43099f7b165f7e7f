"""What benchmark.toml says: cases, matrices, numbers, needs and whether a machine meets them."""

import itertools
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.probe import CoreKind

# One `[[cases]]` entry of a benchmark.toml may stand for many: its `matrix` is multiplied out here.
#
# server/results/benchmarks.py does the same for the service; a test keeps the two alike.

_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entry without its matrix, once for each combination, with `{key}` filled in wherever text stands.

    The order is that of itertools.product over the keys as they are written. Raises ValueError for a matrix that is no
    table of lists of texts.
    """
    matrix = entry.get("matrix", {})
    plain = {key: value for key, value in entry.items() if key != "matrix"}
    if not isinstance(matrix, dict) or not all(_is_list_of_texts(values) for values in matrix.values()):
        raise ValueError("a matrix is a table of lists of texts")
    for chosen in itertools.product(*matrix.values()):
        words = dict(zip(matrix, chosen, strict=True))
        yield {key: fill(value, words) for key, value in plain.items()}


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """`value` with the known `{key}` replaced in all its texts, however deep; unknown ones stay as they are."""
    if isinstance(value, str):
        return _PLACE.sub(lambda found: words.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [fill(item, words) for item in value]
    if isinstance(value, dict):
        return {fill(key, words): fill(item, words) for key, item in value.items()}
    return value


def _is_list_of_texts(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


_MOST_CPUS = 8192


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs in a list like `0-3,8`, in order; raises InfrastructureError for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) >= _MOST_CPUS:
            raise InfrastructureError(f"{text!r} is no list of CPUs")
        found |= set(range(int(first), int(last or first) + 1))
    if not found:
        raise InfrastructureError(f"{text!r} is no list of CPUs")
    return tuple(sorted(found))


def count_of(word: str, cpus: int) -> int:
    """How many CPUs `1`, `half` or `all` (or any number) of `cpus` are; at least one."""
    if word == "all":
        return cpus
    if word == "half":
        return max(1, cpus // 2)
    if word.isdecimal() and 0 < int(word) <= cpus:
        return int(word)
    raise InfrastructureError(f"{word!r} of {cpus} CPUs cannot be had")


# What a case needs of the machine: which words there are for it, and whether it is here.
#
# A need that is not met makes the case `skipped` with the reason; that is no fault of kernel, benchmark or agent.

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


# The kind of value and how it is looked for; None: cases/programs.py and cases/execution.py do.
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


KINDS = ("compiled", "external", "module", "script")
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
# The service stores names as slugs, which have no dot.
_CASE = re.compile(r"[a-zA-Z0-9_-]{1,60}")
DEFAULT_COMMAND = ("{program}", "{case}", "{runs}")


@dataclass(frozen=True)
class Program:
    """What is run: made from the folder (compiled, script, module) or installed by the operator (external).

    `command` makes a compiled program; `file` is what it makes, the script, or a file below an external directory.
    `parser` is the file that reads the output; without one it is JSON lines. Output that has one of `failures` in it
    (in any case of letters) is a failure, whatever the exit status; one of `absences` means that this machine cannot
    run the case. `in_place` runs an external program in its own directory.
    """

    kind: str
    command: tuple[str, ...] = ()
    file: str = ""
    name: str = ""
    parser: str = ""
    failures: tuple[str, ...] = ()
    absences: tuple[str, ...] = ()
    in_place: bool = False


@dataclass(frozen=True)
class Case:
    """One set of parameters. `command` and `environment` may name the places that cases/programs.py fills in."""

    name: str
    title: str
    runs: int
    warmup: int
    timeout_seconds: int
    command: tuple[str, ...]
    file: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_one_process(self) -> bool:
        """Whether one process makes all runs; else each run is a process of its own."""
        return any("{runs}" in word for word in self.command)

    @property
    def keeps(self) -> bool:
        """Whether it wants a directory that lasts until the next boot."""
        return any("{kept}" in word for word in self.command)


@dataclass(frozen=True)
class Metric:
    """`exact`: two boots of one kernel give the same value to the last digit. `zero`: 0 is a value like others."""

    name: str
    title: str
    unit: str
    better: str
    resolution: float = 0.0
    exact: bool = False
    zero: bool = False


@dataclass(frozen=True)
class Description:
    """All of a benchmark.toml but its needs, which each case carries with its own."""

    name: str
    title: str
    follows: str
    program: Program
    cases: Mapping[str, Case]
    metrics: Mapping[str, Metric]


_Named = TypeVar("_Named", Case, Metric)


def read_description(about: Mapping[str, Any]) -> Description:
    """The description in a parsed benchmark.toml; raises ValueError, TypeError or KeyError for one that is wrong."""
    program = _program(about["program"])
    settings, needs = dict(about.get("settings", {})), dict(about.get("needs", {}))
    cases = [_case(entry, program, settings, needs) for entry in _expanded(about["cases"])]
    metrics = [_metric(entry) for entry in about["metrics"]]
    return Description(
        name=_matching(_SLUG, about["name"]),
        title=str(about["title"]),
        follows=str(about.get("follows", "")),
        program=program,
        cases=_by_name(cases),
        metrics=_by_name(metrics),
    )


def _program(entry: Mapping[str, Any]) -> Program:
    kind = str(entry["kind"])
    if kind not in KINDS:
        raise ValueError(f"program kind {kind!r} is none of {', '.join(KINDS)}")
    for key in {"compiled": ("command", "file"), "script": ("file",)}.get(kind, ("name",)):
        if not entry.get(key):
            raise ValueError(f"a {kind} program needs {key}")
    return Program(
        kind=kind,
        command=_texts(entry.get("command", [])),
        file=str(entry.get("file", "")),
        name=str(entry.get("name", "")),
        parser=str(entry.get("parser", "")),
        failures=_texts(entry.get("failures", [])),
        absences=_texts(entry.get("absences", [])),
        in_place=entry.get("in_place", False) is True,
    )


def _expanded(entries: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [plain for entry in entries for plain in expand(entry)]


def _case(entry: dict[str, Any], program: Program, settings: dict[str, Any], needs: dict[str, Any]) -> Case:
    if program.kind == "external" and not entry.get("command"):
        raise ValueError(f"case {entry['name']} of an external program needs a command")
    runs, warmup = int(entry["runs"]), int(entry.get("warmup", 1))
    if not 0 <= warmup < runs:
        raise ValueError(f"case {entry['name']}: {runs} runs of which {warmup} are warm-up")
    return Case(
        name=_matching(_CASE, entry["name"]),
        title=str(entry["title"]),
        runs=runs,
        warmup=warmup,
        timeout_seconds=int(entry.get("timeout_seconds", 60)),
        command=_texts(entry.get("command", DEFAULT_COMMAND)),
        file=str(entry.get("file", program.file)),
        environment={str(key): str(value) for key, value in entry.get("environment", {}).items()},
        parameters={str(key): str(value) for key, value in entry.get("parameters", {}).items()},
        settings={**settings, **entry.get("settings", {})},
        needs=check_needs({**needs, **entry.get("needs", {})}),
    )


def _metric(entry: Mapping[str, Any]) -> Metric:
    if entry["better"] not in {"lower", "higher", "none"}:
        raise ValueError(f"metric {entry['name']}: better is lower, higher or none")
    resolution = float(entry.get("resolution", 0.0))
    if not math.isfinite(resolution) or resolution < 0:
        raise ValueError(f"metric {entry['name']}: resolution {resolution} is no number from 0")
    return Metric(
        name=_matching(_CASE, entry["name"]),
        title=str(entry["title"]),
        unit=str(entry["unit"]),
        better=str(entry["better"]),
        resolution=resolution,
        exact=entry.get("exact", False) is True,
        zero=entry.get("zero", False) is True,
    )


def _by_name(things: list[_Named]) -> dict[str, _Named]:
    found = {thing.name: thing for thing in things}
    if not found or len(found) != len(things):
        raise ValueError("there are none, or two of one name, among the cases or metrics")
    return found


def _texts(words: object) -> tuple[str, ...]:
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{words!r} is no list of texts")
    return tuple(words)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not pattern.fullmatch(str(value)):
        raise ValueError(f"the name {value!r} is not allowed")
    return str(value)
