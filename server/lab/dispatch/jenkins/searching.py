"""Looking for runs that are too old for the list of each job's newest builds."""

from collections.abc import Iterable

from server.lab.dispatch.jenkins.client import JenkinsClient, Missing
from server.lab.dispatch.jenkins.client_read import NEWEST_BUILDS
from server.lab.dispatch.jenkins.matching import Outside
from server.lab.models import JenkinsRun

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
            left -= _find(client, run, outside)
        else:
            outside.unsearched.add(run.attempt.key)


def _may_be_older(run: JenkinsRun, outside: Outside) -> bool:
    """A job with fewer builds than a look shows has no older ones."""
    if run.posts == 0 or run.result or outside.knows(run.attempt.key):
        return False
    return outside.counts.get(run.job, 0) >= NEWEST_BUILDS


def _find(client: JenkinsClient, run: JenkinsRun, outside: Outside) -> int:
    """Returns how many requests it took."""
    before = client.requests
    number = run.number
    if number is None:
        found = client.find_builds(run.job, run.attempt.key)
        number = found[0][0] if found else None
    if number is not None:
        try:
            build = client.build(run.job, number)
        except Missing:
            return client.requests - before
        # The number may be that of another run by now.
        if build.run_id == run.attempt.key:
            outside.add(build)
    return client.requests - before
