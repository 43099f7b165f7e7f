"""The benchmarks that this agent carries: what they are, which version, and their compiled programs."""

import hashlib
import os
import shutil
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.process import capture
from tidemark_agent.version import bundle_root

_COMPILE_SECONDS = 120.0


@dataclass(frozen=True)
class Benchmark:
    """One benchmark as its directory describes it."""

    name: str
    version: str
    command: tuple[str, ...]
    program: str
    cases: tuple[str, ...]
    metrics: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


def find_benchmark(name: str, root: Traversable | None = None) -> Benchmark:
    """The benchmark `name`; raises InfrastructureError if this agent has none."""
    directory = (root or bundle_root() / "benchmarks") / name
    if not (directory / "benchmark.toml").is_file():
        raise InfrastructureError(f"this agent has no benchmark {name}")
    files = tuple(sorted(_files(directory, ""), key=lambda file: file[0].encode()))
    about = tomllib.loads((directory / "benchmark.toml").read_text(encoding="utf-8"))
    return Benchmark(
        name=str(about["name"]),
        version=version_of(files),
        command=tuple(about["build"]["command"]),
        program=str(about["build"]["program"]),
        cases=tuple(case["name"] for case in about["cases"]),
        metrics=tuple(metric["name"] for metric in about["metrics"]),
        files=files,
    )


def version_of(files: tuple[tuple[str, bytes], ...]) -> str:
    """SHA-256 over `path NUL sha256hex NUL` of each file, in the byte order of the paths (see benchmarks/README.md)."""
    total = hashlib.sha256()
    for path, content in sorted(files, key=lambda file: file[0].encode()):
        total.update(path.encode() + b"\0" + hashlib.sha256(content).hexdigest().encode() + b"\0")
    return total.hexdigest()


def compiled_program(benchmark: Benchmark, *, cache: Path, stop: threading.Event) -> bytes:
    """The benchmark's program, compiled once for each version and kept in `cache`."""
    program = cache / f"{benchmark.name}-{benchmark.version}"
    if not program.is_file():
        scratch = cache / f"{benchmark.name}-{os.getpid()}.making"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            _compile(benchmark, scratch, stop).replace(program)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return program.read_bytes()


def _compile(benchmark: Benchmark, scratch: Path, stop: threading.Event) -> Path:
    for name, content in benchmark.files:
        path = scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    capture(benchmark.command, scratch=scratch, timeout=_COMPILE_SECONDS, stop=stop, directory=scratch)
    return scratch / benchmark.program


def _files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
