"""Where a benchmark's program is on this machine, made ready to run.

Each kind of program becomes the same thing: the words of a command, with places in braces that are filled in here. A
program of a new kind needs nothing else; what runs it (execution.py) does not know the kinds.
"""

import hashlib
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_agent.benchmarks import Benchmark, program_file
from tidemark_agent.cases.description import Case
from tidemark_agent.cases.ended import CaseEndedError
from tidemark_agent.cases.model import Surroundings
from tidemark_agent.cases.numbers import count_of, parse_cpus
from tidemark_agent.probe import CoreKind
from tidemark_agent.process import clean_environment

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
            from tidemark_agent.cases.module import module_ready  # noqa: PLC0415 (module.py builds on this file)

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
