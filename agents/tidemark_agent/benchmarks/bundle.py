"""Benchmarks of this agent: found, versioned, and their programs compiled."""

import hashlib
import json
import os
import platform
import shutil
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from tidemark_agent.benchmarks.description import Case, Description, Metric, Program, read_description
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.process import capture
from tidemark_agent.version import bundle_root

_COMPILE_SECONDS: Final = 120.0
# As Debian and others call the programs of their cross compilers.
_PREFIXES: Final = {"x86_64": "x86_64-linux-gnu-", "arm64": "aarch64-linux-gnu-"}
_KERNEL_NAMES: Final = {"aarch64": "arm64"}
_OWN_COMPILERS: Final = frozenset({"cc", "gcc"})


def host_arch() -> str:
    """The architecture of this host, as the kernel's Makefiles call it."""
    machine = platform.machine()
    return _KERNEL_NAMES.get(machine, machine)


def command_for(command: Sequence[str], arch: str) -> list[str]:
    """`command`, which compiles for this host, as one that compiles for `arch`; raises InfrastructureError."""
    if arch == host_arch():
        return list(command)
    if arch not in _PREFIXES or command[0] not in _OWN_COMPILERS:
        raise InfrastructureError(f"{command[0]} on this host does not compile for {arch}")
    return [f"{_PREFIXES[arch]}gcc", *command[1:]]


def static_program(source: str, *, arch: str, cache: Path, stop: threading.Event) -> bytes:
    """A program of the agent's own, `source` below tidemark_agent, that needs no library; compiled once."""
    text = (bundle_root() / "tidemark_agent" / source).read_bytes()
    name = source.rpartition("/")[2].removesuffix(".c")
    program = cache / f"{name}-{arch}-{hashlib.sha256(text).hexdigest()[:16]}"
    if not program.is_file():
        scratch = cache / f"{program.name}.{threading.get_native_id()}.c"
        made = scratch.with_suffix(".making")
        scratch.write_bytes(text)
        try:
            command = command_for(["cc", "-O2", "-static", "-s", "-o", str(made), str(scratch)], arch)
            capture(command, scratch=cache, timeout=_COMPILE_SECONDS, stop=stop)
            made.replace(program)
        finally:
            scratch.unlink()
            made.unlink(missing_ok=True)
    return program.read_bytes()


_BUILD_SECONDS = 120.0


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: what its benchmark.toml says, all its files by relative path, and the hash over them."""

    description: Description
    version: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def program(self) -> Program:
        return self.description.program

    @property
    def cases(self) -> Mapping[str, Case]:
        return self.description.cases

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self.description.metrics

    def needs_of(self, case: str) -> Mapping[str, Any]:
        """What the machine must have; nothing for a case that is not known."""
        return self.cases[case].needs if case in self.cases else {}

    def write_files(self, folder: Path) -> None:
        """Lay the benchmark's files out in `folder`."""
        for name, content in self.files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def find_benchmark(name: str, root: Traversable | None = None) -> Benchmark:
    """The benchmark `name`; raises InfrastructureError if this agent has none, or none that can be understood."""
    benchmarks = root or bundle_root() / "benchmarks"
    directory = benchmarks / name
    if not (directory / "benchmark.toml").is_file():
        raise InfrastructureError(f"this agent has no benchmark {name}")
    try:
        about = tomllib.loads((directory / "benchmark.toml").read_text(encoding="utf-8"))
        description = read_description(about)
        files = dict(_files(directory, ""))
        files |= {place.rpartition("/")[2]: (benchmarks / place).read_bytes() for place in about.get("shared", [])}
        _require_files(description.program, files)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise InfrastructureError(f"benchmark {name} cannot be understood: {error!r}") from error
    in_order = tuple(sorted(files.items(), key=lambda file: file[0].encode()))
    return Benchmark(description=description, version=version_of(in_order), files=in_order)


def benchmark_names(root: Traversable | None = None) -> list[str]:
    """All benchmarks that this agent carries, by name."""
    folders = (root or bundle_root() / "benchmarks").iterdir()
    return sorted(folder.name for folder in folders if (folder / "benchmark.toml").is_file())


def _require_files(program: Program, files: Mapping[str, bytes]) -> None:
    wanted = {program.parser, program.file if program.kind == "script" else ""} - {""}
    if missing := wanted - set(files):
        raise ValueError(f"{min(missing)} is neither in the folder nor shared")


def version_of(files: tuple[tuple[str, bytes], ...]) -> str:
    """SHA-256 over `path NUL sha256hex NUL` of each file, in the byte order of the paths (see benchmarks/README.md)."""
    total = hashlib.sha256()
    for path, content in sorted(files, key=lambda file: file[0].encode()):
        counted = _measured_by(content) if path == "benchmark.toml" else content
        total.update(path.encode() + b"\0" + hashlib.sha256(counted).hexdigest().encode() + b"\0")
    return total.hexdigest()


def _measured_by(description: bytes) -> bytes:
    """What a benchmark.toml says, but for titles and sources, as sorted JSON."""
    said = tomllib.loads(description.decode())
    for part in (said, *said.get("cases", []), *said.get("metrics", [])):
        part.pop("title", None)
    for words in ("follows", "words"):
        said.pop(words, None)
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=str).encode()


def compiled_program(benchmark: Benchmark, *, cache: Path, stop: threading.Event, arch: str = "") -> bytes:
    """The benchmark's program as bytes; see `program_file`."""
    return program_file(benchmark, cache=cache, stop=stop, arch=arch).read_bytes()


def program_file(benchmark: Benchmark, *, cache: Path, stop: threading.Event, arch: str = "") -> Path:
    """The benchmark's program, compiled once for each version and kept in `cache`; `arch` "" is this host's own."""
    is_foreign = arch not in {"", host_arch()}
    program = cache / f"{benchmark.name}-{benchmark.version}{f'-{arch}' if is_foreign else ''}"
    if not program.is_file():
        scratch = cache / f"{benchmark.name}-{os.getpid()}.making"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            made = _compile(benchmark, scratch, stop, arch or host_arch())
            made.chmod(0o755)
            _settle(made)
            made.replace(program)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return program


def _compile(benchmark: Benchmark, scratch: Path, stop: threading.Event, arch: str) -> Path:
    benchmark.write_files(scratch)
    command = command_for(benchmark.program.command, arch)
    capture(command, scratch=scratch, timeout=_BUILD_SECONDS, stop=stop, directory=scratch)
    made = scratch / benchmark.program.file
    if not made.is_file():
        raise InfrastructureError(f"compiling {benchmark.name} made no {benchmark.program.file}")
    return made


def _settle(path: Path) -> None:
    """Bring the file to the disk before it gets its name: a power cut must not leave a name with half a program."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
