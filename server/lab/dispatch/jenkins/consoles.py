"""What the console says of builds that failed before an agent had claimed the attempt: never is it the work's fault.

Nothing of anybody's patch has run by then: the console holds words of Jenkins, of the job's script and of our agent.
They are for staff; reasons are public, and say in words of ours whose fault it was.
"""

import json
from collections.abc import Iterable, Mapping

import structlog

from server.lab.dispatch.base import Observed, Sighting
from server.lab.dispatch.jenkins.client import Garbled, JenkinsClient, Missing, Rejected
from server.lab.models import Fault, JenkinsRun

log = structlog.get_logger(__name__)

# Requests of one round for this. What there is no time for is waited for, so that nothing is concluded without it.
MOST_REQUESTS = 2
_FAILURE = "FAILURE"
_KEPT_CHARACTERS = 4000
# The event with which our agent ends when the service does not answer it (tidemark_agent/log.py).
_GIVEN_UP = "server-given-up"


def explain(client: JenkinsClient, runs: Mapping[str, JenkinsRun], sightings: dict[str, Sighting]) -> None:
    """Read the consoles of builds that failed unclaimed: fault and console are set on the runs, and not saved."""
    left = MOST_REQUESTS
    for key, run in runs.items():
        if sightings[key].observed is not Observed.LEFT or not _failed_unclaimed(run):
            continue
        if not run.fault:
            if not left:
                sightings[key] = Sighting(Observed.UNSURE, "its console is still to be read")
                continue
            left -= 1
            _read(client, run)
        sightings[key] = Sighting(Observed.LEFT, f"{sightings[key].detail}{_words(run)}")


def _failed_unclaimed(run: JenkinsRun) -> bool:
    attempt = run.attempt
    return run.result == _FAILURE and run.number is not None and not attempt.agent and attempt.arrived_at is None


def _read(client: JenkinsClient, run: JenkinsRun) -> None:
    try:
        text = client.log(run.job, run.number or 0).text.strip()
    except (Garbled, Missing, Rejected) as error:
        # Its fault stays unknown: nothing is concluded from it.
        log.warning("jenkins_console_unread", key=run.attempt.key, error=error.message)
        run.fault = Fault.UNKNOWN
        return
    run.console = text[-_KEPT_CHARACTERS:]
    run.fault = Fault.SERVICE if _GIVEN_UP in _events(text.splitlines()) else Fault.HOST


def _events(lines: Iterable[str]) -> set[str]:
    """The events of our agent's log lines."""
    found = set()
    for line in lines:
        try:
            value = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("event"), str):
            found.add(value["event"])
    return found


def _words(run: JenkinsRun) -> str:
    return f"; {run.get_fault_display()}{'; its console is for staff' if run.console else ''}"
