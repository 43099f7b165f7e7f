"""Writing down what a look has told of runs, without undoing what agents say at the same time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from server.lab.models import JenkinsRun

_SEEN = ("queue_id", "why", "stuck", "result", "seen_at", "absent_since", "absent_looks", "fault", "console")
# An agent that claims or arrives says these itself, and knows better.
_PLACE = ("number", "node")

Known = Mapping[str, Any]


def known(run: JenkinsRun) -> Known:
    """What is stored of the run by now, to be compared after the look."""
    return {name: getattr(run, name) for name in (*_SEEN, *_PLACE)}


def keep(runs: Iterable[JenkinsRun], before: Mapping[int, Known]) -> None:
    """Store what changed, and nothing else; as many statements as there are kinds of change."""
    changed: dict[tuple[str, ...], list[JenkinsRun]] = defaultdict(list)
    for run in runs:
        old = before[run.pk]
        names = tuple(name for name in _SEEN if getattr(run, name) != old[name])
        if names:
            changed[names].append(run)
        if any(getattr(run, name) != old[name] for name in _PLACE):
            JenkinsRun.objects.filter(
                pk=run.pk,
                number=old["number"],
                attempt__agent=run.attempt.agent,
                attempt__arrived_at=run.attempt.arrived_at,
            ).update(number=run.number, node=run.node)
    for names, group in changed.items():
        JenkinsRun.objects.bulk_update(group, names)
