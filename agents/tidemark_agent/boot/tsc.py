"""The frequency of the time stamp counter that an emulated machine sees.

A kernel finds it out by timing it against the emulated PIT, which on a busy host fails or comes out wrong. So it is
told: counted instructions make exactly 1 GHz, and plain emulation passes the host's counter on.
"""

import hashlib
import platform
import threading
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.process import capture
from tidemark_agent.version import bundle_root

COUNTED_KHZ = 1_000_000
_COMPILE_SECONDS = 60.0
_MEASURE_SECONDS = 10.0


def host_tsc_khz(cache: Path, stop: threading.Event) -> int | None:
    """The host's frequency, measured now; None on hosts that have no such counter."""
    if platform.machine() != "x86_64":
        return None
    source = (bundle_root() / "tidemark_agent" / "boot" / "host_tsc.c").read_bytes()
    program = cache / f"host-tsc-{hashlib.sha256(source).hexdigest()[:16]}"
    if not program.is_file():
        text = cache / f"{program.name}.{threading.get_native_id()}.c"
        made = text.with_suffix(".making")
        text.write_bytes(source)
        try:
            command = ["cc", "-O2", "-o", str(made), str(text)]
            capture(command, scratch=cache, timeout=_COMPILE_SECONDS, stop=stop)
            made.replace(program)
        finally:
            text.unlink()
    said = capture([str(program)], scratch=cache, timeout=_MEASURE_SECONDS, stop=stop).strip()
    if not said.isdigit() or int(said) == 0:
        raise InfrastructureError(f"the host's TSC cannot be measured: {said[:100]!r}")
    return int(said)
