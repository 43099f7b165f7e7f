"""Looking for runs that are too old for the list of each job's newest builds."""

from collections.abc import Iterable

import structlog

from server.lab.dispatch.jenkins.client import Garbled, JenkinsClient, Missing, Rejected
from server.lab.dispatch.jenkins.client_read import NEWEST_BUILDS
from server.lab.dispatch.jenkins.matching import Outside
from server.lab.models import JenkinsRun

log = structlog.get_logger(__name__)

# Requests of one round for this; with the three of a look, and one for a job's definition, a round needs six at most.
MOST_REQUESTS = 2


def search(client: JenkinsClient, runs: Iterable[JenkinsRun], outside: Outside) -> None:
    """Add builds of runs that the look did not show to `outside`."""
    missing = [run for run in runs if _may_be_older(run, outside)]
    # Each search in vain is counted, so that all have their turn.
    missing.sort(key=lambda run: (run.absent_looks, run.pk))
    left = MOST_REQUESTS
    for run in missing:
        if left > 0:
            left -= _try_to_find(client, run, outside)
        else:
            outside.unsearched.add(run.attempt.key)


def _may_be_older(run: JenkinsRun, outside: Outside) -> bool:
    """A job with fewer builds than a look shows has no older ones."""
    if run.posts == 0 or run.result or outside.knows(run):
        return False
    return outside.counts.get(run.job, 0) >= NEWEST_BUILDS


def _try_to_find(client: JenkinsClient, run: JenkinsRun, outside: Outside) -> int:
    """Returns how many requests it took. An odd answer to one search leaves that run unsearched, and no other."""
    before = client.requests
    try:
        _find(client, run, outside)
    except (Garbled, Missing, Rejected) as error:
        log.warning("jenkins_search_failed", key=run.attempt.key, error=error.message)
        outside.unsearched.add(run.attempt.key)
    return client.requests - before


def _find(client: JenkinsClient, run: JenkinsRun, outside: Outside) -> None:
    number = run.number
    if number is None:
        found = client.find_builds(run.job, run.attempt.key)
        number = found[0][0] if found else None
    if number is not None:
        try:
            build = client.build(run.job, number)
        except Missing:
            return
        # The number may be that of another run by now.
        if build.run_id == run.attempt.key:
            outside.add(build)
