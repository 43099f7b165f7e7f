"""Stopping a run: out of the queue; else stopped; else its agent is cut off and its host taken out of service."""

from datetime import datetime, timedelta

import structlog

from server.lab.dispatch.base import Observed, Sighting
from server.lab.dispatch.jenkins.answers import BuildFacts, QueueItem, Stage
from server.lab.dispatch.jenkins.client import Forbidden, JenkinsClient, Missing, Rejected
from server.lab.dispatch.jenkins.definitions import own_mark
from server.lab.dispatch.jenkins.matching import Outside
from server.lab.hosts import Health, change_health
from server.lab.models import JenkinsRun

log = structlog.get_logger(__name__)

# A build ends within a second after `stop`. One that goes on has an agent that hears nothing.
_STOP_PATIENCE = timedelta(seconds=60)


def stop_run(client: JenkinsClient, run: JenkinsRun, outside: Outside, sighting: Sighting, now: datetime) -> bool:
    """One step down the ladder; whether nothing of the run is with the controller any more.

    The answers to these requests prove nothing: the next look does.
    """
    item = outside.item_of(run)
    if item is not None:
        _cancel_item(client, run, item, now)
        return False
    building = [build for build in outside.builds_of(run) if build.building]
    if building:
        return _stop_builds(client, run, building, now)
    # What was in the queue, is not there since we canceled it, and did not become a build, is over at once.
    return run.cancel_asked_at is not None or sighting.observed is not Observed.UNSURE


def _cancel_item(client: JenkinsClient, run: JenkinsRun, item: QueueItem, now: datetime) -> None:
    """Ids are given out again by a controller that was killed: the item is read once more right before."""
    try:
        fresh = client.queue_item(item.id)
    except Missing:
        return
    if fresh.run_id != run.attempt.key or fresh.stage is Stage.LEFT:
        return
    client.cancel_item(item.id)
    _note(run, cancel_asked_at=now)


def _stop_builds(client: JenkinsClient, run: JenkinsRun, building: list[BuildFacts], now: datetime) -> bool:
    if run.stop_asked_at is None:
        _ask_to_stop(client, run, building, now)
        return False
    if now < run.stop_asked_at:
        # Our clock was put back: its patience begins anew.
        _note(run, stop_asked_at=now)
    if now - run.stop_asked_at < _STOP_PATIENCE:
        return False
    if run.disconnect_asked_at is None:
        _note(run, disconnect_asked_at=now)
        _quarantine(run)
        for node in sorted({build.node for build in building if build.node}):
            client.disconnect(node, f"{own_mark()}{run.attempt.key} does not stop")
    return True


def _ask_to_stop(client: JenkinsClient, run: JenkinsRun, building: list[BuildFacts], now: datetime) -> None:
    """A build that we are not allowed to stop must not keep us from cutting its agent off: else it would never end."""
    for build in building:
        try:
            client.stop(build.job, build.number)
        except Missing:
            # Deleted since the look.
            continue
        except (Forbidden, Rejected):
            _note(run, stop_asked_at=now)
            raise
    _note(run, stop_asked_at=now)


def _quarantine(run: JenkinsRun) -> None:
    """Its program may live on, unseen: nothing else is given to the host until it has proved itself."""
    host = run.attempt.machine or run.attempt.builder
    log.warning("agent_cut_off", key=run.attempt.key, host=str(host))
    if host is not None:
        change_health(host, Health.QUARANTINED, f"it did not let go of {run.attempt.key} when it was stopped")


def _note(run: JenkinsRun, **asked: datetime) -> None:
    JenkinsRun.objects.filter(pk=run.pk).update(**asked)
    for name, value in asked.items():
        setattr(run, name, value)
