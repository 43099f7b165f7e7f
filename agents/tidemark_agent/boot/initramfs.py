"""The small system that a measured kernel starts: busybox, the benchmarks, and the init script."""

import gzip
from collections.abc import Sequence
from pathlib import Path

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.boot.cpio import Entry, character_device, directory, program, write_archive
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.version import bundle_root

_BUSYBOX_PLACES = ("/bin/busybox", "/usr/bin/busybox")
_ELF_INTERPRETER = 3


def build_initramfs(cases: Sequence[PlannedCase], programs: dict[str, bytes]) -> bytes:
    """The compressed archive that runs `cases` in their order; `programs` by benchmark name. Same input, same bytes."""
    init = (bundle_root() / "tidemark_agent" / "boot" / "init.sh").read_bytes()
    lines = [f"{case.timeout_seconds} /benchmarks/{case.benchmark} {case.case} {case.runs}\n" for case in cases]
    entries: list[Entry] = [
        *(directory(name) for name in ("bin", "dev", "proc", "sys", "tmp", "benchmarks")),
        character_device("dev/console", 5, 1),
        character_device("dev/null", 1, 3),
        program("bin/busybox", find_busybox()),
        program("init", init),
        program("cases", "".join(lines).encode()),
        *(program(f"benchmarks/{name}", content) for name, content in sorted(programs.items())),
    ]
    return gzip.compress(write_archive(entries), compresslevel=1, mtime=0)


def find_busybox(places: Sequence[str] = _BUSYBOX_PLACES) -> bytes:
    """Busybox's bytes; it must be static, for the booted system has no libraries."""
    for place in places:
        path = Path(place)
        if path.is_file():
            content = path.read_bytes()
            if _needs_interpreter(content):
                raise InfrastructureError(f"{place} is not static: install busybox-static")
            return content
    raise InfrastructureError("busybox is missing: install busybox-static")


def _needs_interpreter(content: bytes) -> bool:
    """Whether a 64-bit little-endian ELF program names a dynamic loader."""
    if content[:6] != b"\x7fELF\x02\x01":
        return False
    start = int.from_bytes(content[32:40], "little")
    size = int.from_bytes(content[54:56], "little")
    count = int.from_bytes(content[56:58], "little")
    kinds = (content[start + i * size : start + i * size + 4] for i in range(count))
    return any(int.from_bytes(kind, "little") == _ELF_INTERPRETER for kind in kinds)
