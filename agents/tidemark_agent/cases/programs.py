"""A case and where it runs: how it ended, and the program, script or module that measures it."""

import hashlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark, program_file
from tidemark_agent.benchmarks.description import Case, count_of, parse_cpus
from tidemark_agent.build.modules import module_file
from tidemark_agent.errors import AgentError
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind
from tidemark_agent.system.process import clean_environment
from tidemark_agent.version import bundle_root

OUTCOMES = ("failed", "timeout", "garbled", "oom", "skipped", "infrastructure")


class CaseEndedError(AgentError):
    """The case is over without values. `evidence` is what the program printed, if one ran."""

    def __init__(self, outcome: str, reason: str, evidence: str = "") -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = reason
        self.evidence = evidence


class StuckError(CaseEndedError):
    """A process of the case was killed and is still there, so nothing more can be measured until the next boot."""


@dataclass(frozen=True)
class Surroundings:
    """The booted system that cases run in.

    `programs` are the operator's external programs by name, `modules` holds the benchmark modules that were built with
    the running kernel (None: there are none), `core_types` the kinds of cores with the CPUs to measure on. `sample` is
    asked before and after each run for temperatures, frequencies and noise. `pins` is the SHA-256 that the operator
    wants some of the programs to have.
    """

    state: Path
    programs: Mapping[str, Path]
    modules: Path | None
    core_types: tuple[CoreKind, ...]
    log: Log
    stop: threading.Event
    sample: Callable[[], Mapping[str, Any]] = dict
    with_counters: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")


@dataclass(frozen=True)
class CaseResult:
    """How one case ended on one core type.

    `outcome` is measured, failed, timeout, garbled, oom, skipped (a need is not met here) or infrastructure (ours: the
    case may be tried again). `values` holds the values of all runs by metric, warm-up first, and is empty unless
    measured. `evidence` is the end of the output, `samples` one entry for each run, `counters` what `perf stat` saw in
    runs of their own, `settings` those that the case asked for, `programs` the hash of each external file it ran.
    """

    benchmark: str
    version: str
    case: str
    core_type: str
    outcome: str
    reason: str = ""
    warmup: int = 0
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    evidence: str = ""
    samples: tuple[Mapping[str, Any], ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    settings: tuple[Mapping[str, Any], ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)


# Where a benchmark's program is on this machine, made ready to run.
#
# Each kind of program becomes the same thing: the words of a command, with places in braces that are filled in here.
# A program of a new kind needs nothing else; what runs it (execution.py) does not know the kinds.

_PLACE = re.compile(r"\{([a-z]+)(?::([^{}]+))?\}")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Ready:
    """A program that can be run: its own words, the files it needs by name, and where it runs (None: in scratch).

    `files` are recorded by hash with the results: everything that did not come with the agent.
    """

    words: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    directory: Path | None = None


def make_ready(benchmark: Benchmark, case: Case, surroundings: Surroundings, folder: Path) -> Ready:
    """The program of `case`; raises CaseEndedError where this machine does not have it.

    `folder` is an empty directory for the benchmark's own files.
    """
    helpers = _helpers(case, surroundings)
    match benchmark.program.kind:
        case "compiled":
            return Ready((str(_compiled(benchmark, surroundings)),), helpers)
        case "script":
            benchmark.write_files(folder)
            return Ready((sys.executable, "-I", "-B", str(folder / benchmark.program.file)), helpers)
        case "module":
            return module_ready(benchmark, case, surroundings, folder)
        case _:
            return _external(benchmark, case, surroundings, helpers)


def missing_compiler(benchmark: Benchmark, state: Path) -> str:
    """Why a compiled benchmark cannot be had here: its program is not in the state directory, and nothing makes it."""
    compiler = benchmark.program.command[0]
    is_made = (state / "benchmarks" / f"{benchmark.name}-{benchmark.version}").is_file()
    return "" if is_made or shutil.which(compiler) else f"needs the compiler {compiler}"


def _compiled(benchmark: Benchmark, surroundings: Surroundings) -> Path:
    problem = missing_compiler(benchmark, surroundings.state)
    if problem:
        raise CaseEndedError("skipped", problem)
    cache = surroundings.state / "benchmarks"
    cache.mkdir(parents=True, exist_ok=True)
    return program_file(benchmark, cache=cache, stop=surroundings.stop)


def _external(benchmark: Benchmark, case: Case, surroundings: Surroundings, helpers: Mapping[str, Path]) -> Ready:
    """The operator's program: the file that agent.toml names, or one below the directory that it names."""
    name = benchmark.program.name
    place = find_program(name, surroundings)
    if place is None:
        raise CaseEndedError("skipped", f"{name} is not installed: [programs] in agent.toml says where it is")
    path = place / case.file if case.file else place
    if case.file and not path.resolve().is_relative_to(place.resolve()):
        raise CaseEndedError("skipped", f"{case.file} leads out of {place}")
    if not path.is_file():
        raise CaseEndedError("skipped", f"{name} at {place} has no {case.file or 'program there'}")
    directory = path.parent if benchmark.program.in_place else None
    label = f"{name}/{case.file}" if case.file else name
    return Ready((str(path),), {**helpers, label: path}, directory)


def find_program(name: str, surroundings: Surroundings) -> Path | None:
    """Where the operator says that `name` is, else where PATH has it; None if it is nowhere."""
    place = surroundings.programs.get(name)
    if place is None and (found := shutil.which(name)):
        place = Path(found)
    return place.resolve() if place is not None and place.exists() else None


def _helpers(case: Case, surroundings: Surroundings) -> dict[str, Path]:
    """The programs and files of the operator that the case needs beside its own program."""
    found: dict[str, Path] = {}
    for name in case.needs.get("programs", []):
        place = find_program(name, surroundings)
        if place is None:
            raise CaseEndedError("skipped", f"needs {name}, which is neither in agent.toml's [programs] nor in PATH")
        found[name] = place
    for name in case.needs.get("pinned", []):
        place = find_program(name, surroundings)
        if place is None or name not in surroundings.pins:
            raise CaseEndedError("skipped", f"needs {name}: [programs] in agent.toml says where it is, with its sha256")
        found[name] = place
    return found


def path_to_helpers(case: Case, ready: Ready, surroundings: Surroundings, folder: Path) -> dict[str, str]:
    """The environment in which the case finds by name what agent.toml names: what is recorded is what runs."""
    chosen = [name for name in case.needs.get("programs", []) if name in surroundings.programs and name in ready.files]
    if not chosen:
        return {}
    folder.mkdir()
    for name in chosen:
        (folder / name).symlink_to(ready.files[name])
    return {"PATH": f"{folder}:{clean_environment()['PATH']}"}


@dataclass(frozen=True)
class Places:
    """What the words of a case's command may name, beside {program}, which is replaced by several words."""

    case: str
    runs: int
    core: CoreKind
    scratch: Path
    folder: Path
    kept: Path
    files: Mapping[str, Path]

    def command(self, case: Case, program: tuple[str, ...]) -> list[str]:
        words: list[str] = []
        for word in case.command:
            words += program if word == "{program}" else [self.fill(word)]
        return words

    def fill(self, text: str) -> str:
        """`text` with {case} {runs} {cpus} {cpus:half} {cpulist} {scratch} {folder} {kept} {path:NAME} filled in."""
        return _PLACE.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        name, argument = found[1], found[2]
        cpus = parse_cpus(self.core.cpus)
        if name == "cpus":
            return str(count_of(argument or "all", len(cpus)))
        if name == "path" and argument in self.files:
            return str(self.files[argument])
        plain = {
            "case": self.case,
            "runs": str(self.runs),
            "cpulist": self.core.cpus,
            "scratch": str(self.scratch),
            "folder": str(self.folder),
            "kept": str(self.kept),
        }
        if argument is not None or name not in plain:
            raise CaseEndedError("infrastructure", f"the command names {found[0]}, which nothing fills in")
        return plain[name]


class Hashes:
    """SHA-256 of files, counted once for each state of a file: a source archive is large and cases are many."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], str] = {}

    def of(self, path: Path) -> str:
        about = path.stat()
        key = (str(path), about.st_ino, about.st_size, about.st_mtime_ns)
        if key not in self._known:
            total = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    total.update(chunk)
            self._known[key] = total.hexdigest()
        return self._known[key]


def module_ready(benchmark: Benchmark, _case: Case, surroundings: Surroundings, _folder: Path) -> Ready:
    """The command that measures with the module which was built with the running kernel; skipped if there is none."""
    if surroundings.modules is None:
        raise CaseEndedError("skipped", "no modules were built with the running kernel")
    path = surroundings.modules / module_file(benchmark)
    if not path.is_file():
        name = f"{benchmark.program.name} in version {benchmark.version[:12]}"
        raise CaseEndedError("skipped", f"{name} was not built with the running kernel: see its build log")
    source = (bundle_root() / "tidemark_agent" / "cases" / "module_run.py").read_text(encoding="utf-8")
    words = (sys.executable, "-I", "-S", "-c", source, str(path), benchmark.program.name)
    return Ready(words, {path.name: path})
