"""A power cycle: the operator's own command switches a machine off and on."""

import re
import threading
from pathlib import Path

from tidemark_agent.assignment import PowerJob
from tidemark_agent.config import PowerConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.process import clean_environment, heed_stop, run
from tidemark_agent.text import clean_text, last_bytes

_LARGEST_OUTPUT = 1024**2
_LONGEST_EVIDENCE = 400
_NOT_FOUND = 127
_PLACES = re.compile(r"\{[a-z_]+\}")


def cycle_power(job: PowerJob, config: PowerConfig, *, scratch: Path, log: Log, stop: threading.Event) -> str:
    """Run the command to a good end and return the end of what it printed; raises InfrastructureError for any other."""
    words = power_command(config.command, job)
    seconds = min(job.timeout_seconds, config.timeout_seconds) if job.timeout_seconds else config.timeout_seconds
    output = scratch / f"power-{job.machine}.log"
    log.info("power-cycle", machine=job.machine, reason=job.reason, command=words)
    done = run(
        words,
        output=output,
        timeout=seconds,
        stop=stop,
        environment=clean_environment({"HOME": "/"}),
        directory=scratch,
        log_limit=_LARGEST_OUTPUT,
    )
    said = last_bytes(clean_text(output.read_bytes()).strip(), _LONGEST_EVIDENCE)
    output.unlink(missing_ok=True)
    if done.timed_out:
        raise InfrastructureError(f"the power command did not end within {seconds:.0f} s: {said}".rstrip(": "))
    if done.code == _NOT_FOUND:
        raise InfrastructureError(f"the power command cannot be run: {said}")
    if done.code != 0:
        # A failure takes the machine out of service: not for a stop that ended the command before the agent.
        heed_stop(stop)
        raise InfrastructureError(f"the power command failed with {done.code}: {said}".rstrip(": "))
    return said


def power_command(command: tuple[str, ...], job: PowerJob) -> list[str]:
    """The operator's words with {machine} and {node} filled in. No shell ever reads them."""
    if not command:
        raise InfrastructureError("this host switches no power: power.command is not in its configuration")
    for word in command:
        if unknown := _PLACES.findall(word.replace("{machine}", "").replace("{node}", "")):
            raise InfrastructureError(f"power.command has {unknown[0]}, which nothing is known for")
    return [word.replace("{machine}", job.machine).replace("{node}", job.node) for word in command]
