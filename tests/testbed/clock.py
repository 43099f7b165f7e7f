"""The clock of an emulated machine: its kernel is told the counter's frequency, which it would measure wrong.

Plain emulation passes the host's counter on. On a busy host the guest's calibration of it can be wrong by any factor,
and a guest whose seconds are too short runs into every time limit.
"""

import threading
from collections.abc import Sequence
from functools import cache

from tidemark_agent.boot.qemu import COUNTED_KHZ, host_tsc_khz

from tests.testbed.paths import CACHE


def clock_words(emulator: Sequence[str]) -> str:
    """Words for the kernel's command line, for an emulator that was started with these words."""
    khz = COUNTED_KHZ if "-icount" in emulator else _host_khz()
    return f"tsc_early_khz={khz}" if khz else ""


@cache
def _host_khz() -> int | None:
    CACHE.mkdir(parents=True, exist_ok=True)
    return host_tsc_khz(CACHE, threading.Event())
