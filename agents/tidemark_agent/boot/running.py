"""Which kernel is running, as it proves itself."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.console import TAIL_BYTES
from tidemark_agent.boot.words import nonce_of
from tidemark_agent.build.elf import build_id_of_notes
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.text import clean_text, last_bytes

_LARGEST_RECORD = 8192
_BOOT_ID = re.compile(r"[0-9a-f-]{1,36}")
_MOST_RECORDS = 100_000


@dataclass(frozen=True)
class RunningSystem:
    """The running kernel: its random boot id, its build id ("" if it shows none), and our nonce on its command line.

    A kernel under test may show anything: a boot id that is none is "" and a long build id is cut, or the service would
    refuse the result.
    """

    boot_id: str
    build_id: str
    nonce: str
    command_line: str

    @property
    def is_test_kernel(self) -> bool:
        return bool(self.nonce)


def running_system(root: Path = Path("/")) -> RunningSystem:
    """What runs now; raises InfrastructureError where /proc does not tell."""
    try:
        boot_id = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
        line = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise InfrastructureError(f"the running kernel cannot be told: {error}") from error
    boot_id = boot_id if _BOOT_ID.fullmatch(boot_id) else ""
    notes = b""
    with contextlib.suppress(OSError):
        notes = (root / "sys/kernel/notes").read_bytes()
    build_id = build_id_of_notes(notes)
    return RunningSystem(boot_id=boot_id, build_id=build_id, nonce=nonce_of(line), command_line=line)


def kernel_log_tail(device: Path = Path("/dev/kmsg")) -> str:
    """The end of the kernel's own log, without the machine words before each message; "" where it cannot be read."""
    lines: list[bytes] = []
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _LARGEST_RECORD)
            except BrokenPipeError:
                continue  # Messages were overwritten while we read; the next read goes on with the oldest left.
            if not record:
                break
            lines.append(record.partition(b";")[2].split(b"\n")[0])
    except OSError:
        pass  # BlockingIOError: all has been read.
    finally:
        os.close(descriptor)
    return last_bytes(clean_text(b"\n".join(lines)[-TAIL_BYTES:]), TAIL_BYTES)
