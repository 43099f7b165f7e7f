"""Compiling C programs for the machines that are measured, which may be of another architecture than this host."""

import hashlib
import platform
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.process import capture
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
