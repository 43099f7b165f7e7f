"""The small system that a measured kernel starts: the init program, the benchmarks, and the list of cases."""

import gzip
from collections.abc import Mapping, Sequence

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.boot.cpio import Entry, character_device, directory, plain_file, program, write_archive

INIT_SOURCE = "boot/init.c"


def build_initramfs(cases: Sequence[PlannedCase], programs: Mapping[str, bytes], *, init: bytes) -> bytes:
    """The compressed archive that runs `cases` in their order; `programs` by benchmark name. Same input, same bytes."""
    lines = [f"{case.timeout_seconds} /benchmarks/{case.benchmark} {case.case} {case.runs}\n" for case in cases]
    entries: list[Entry] = [
        *(directory(name) for name in ("dev", "proc", "sys", "tmp", "benchmarks")),
        character_device("dev/console", 5, 1),
        character_device("dev/null", 1, 3),
        program("init", init),
        plain_file("cases", "".join(lines).encode()),
        *(program(f"benchmarks/{name}", content) for name, content in sorted(programs.items())),
    ]
    return gzip.compress(write_archive(entries), compresslevel=1, mtime=0)
