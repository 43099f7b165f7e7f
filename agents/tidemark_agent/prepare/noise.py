"""How much measured CPUs are interrupted, looked at before the first case."""

import json
import sys
import threading
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.prepare.cpu_list import cpu_set
from tidemark_agent.process import capture
from tidemark_agent.version import bundle_root

_MILLISECONDS = 50
# Some CPUs stand for all: 64 times 50 ms would be waited for at every boot.
_MOST_CPUS = 4
_SECONDS = 20.0


def scheduling_noise(cpus: str, *, scratch: Path, log: Log, stop: threading.Event) -> tuple[dict[str, float], ...]:
    """One object for each CPU that was watched (see noise_probe.py), at most four of `cpus`, evenly chosen.

    Never while a case runs: it takes the whole CPU. Empty where it cannot be done, since nothing depends on it; raises
    StoppedError.
    """
    every = sorted(cpu_set(cpus))
    chosen = every[:: -(-len(every) // _MOST_CPUS) or 1]
    if not chosen:
        return ()
    source = (bundle_root() / "tidemark_agent" / "prepare" / "noise_probe.py").read_text(encoding="utf-8")
    names = ",".join(str(cpu) for cpu in chosen)
    try:
        text = capture(
            [sys.executable, "-I", "-S", "-c", source, names, str(_MILLISECONDS)],
            scratch=scratch,
            timeout=_SECONDS,
            stop=stop,
        )
        return tuple(dict(json.loads(line)) for line in text.splitlines())
    except (InfrastructureError, OSError, ValueError) as error:
        log.warning("noise-not-measured", reason=str(error))
        return ()
