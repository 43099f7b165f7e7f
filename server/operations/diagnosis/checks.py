"""Whether the work goes on: watched sources, the dispatcher, leases, tasks, partitions; and all checks together."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from server.core import clock
from server.core.access.tries import given_up
from server.core.rows.partitions import caught
from server.lab.models import Attempt, AttemptState
from server.lab.port import dispatcher
from server.operations.canary import canary_alarm, the_canary
from server.operations.diagnosis.ailment import Ailment, ailment
from server.operations.diagnosis.host import (
    agent_ailments,
    disk_ailments,
    mail_ailments,
    mirror_ailments,
    secret_ailments,
)
from server.operations.diagnosis.servers import (
    broker_ailments,
    database_ailments,
    database_answers,
    migration_ailments,
    worker_ailments,
)
from server.operations.standing import watcher_lags

# A silent agent keeps its attempt for half an hour; the sweep ends it then.
_HELD = timedelta(minutes=45)


def watcher_ailments() -> Iterator[Ailment]:
    for row in watcher_lags(clock.now()):
        command = f"manage.py {'fetch_tree' if row.kind == 'tree' else 'watch_list'} {row.name}"
        if row.failing_since:
            since = f"{row.failing_since:%Y-%m-%d %H:%M} UTC"
            what = f"the {row.kind} {row.name} cannot be read since {since}"
            yield ailment("watcher-failing", what, f"check its address and the network; {command} says what is wrong")
        elif row.late:
            what = f"nobody has asked the {row.kind} {row.name} for several of its polls"
            yield ailment("watcher-behind", what, f"a worker on `sources` and beat must run; {command} asks now")


def dispatcher_ailments() -> Iterator[Ailment]:
    for alarm in dispatcher().alarms(clock.now()):
        yield ailment("dispatcher-alarm", alarm.what, alarm.advice)


def lease_ailments() -> Iterator[Ailment]:
    overdue = Attempt.objects.filter(state=AttemptState.RUNNING, lease_until__lt=clock.now() - _HELD)
    keys = list(overdue.order_by("pk").values_list("key", flat=True)[:5])
    if keys:
        yield ailment(
            "leases-stuck",
            f"nobody has heard of the agents of {', '.join(keys)} for long, and no sweep has ended them",
            "a worker on `lab` and beat must run; manage.py stop_agents --help",
        )


def partition_ailments() -> Iterator[Ailment]:
    """Rows that fell into a part for what fits in no other: theirs was not made ahead."""
    for name in caught():
        what = f"{name} holds rows that fit in no part: theirs was not there when they came"
        mend = "a worker on `upkeep` moves them within the hour; its log says what is in the way (part_waits)"
        yield ailment("default-partition-filled", what, mend)


def task_ailments() -> Iterator[Ailment]:
    for row in given_up():
        what = f"the task {row.task} ended {row.times} processes and is given up until {row.until:%Y-%m-%d %H:%M} UTC"
        yield ailment("task-given-up", what, "the workers' logs say how; TIDEMARK_WORKER_MEMORY_MB may be too small")


def canary_ailments() -> Iterator[Ailment]:
    if alarm := canary_alarm(the_canary(), clock.now()):
        yield ailment("canary-overdue", alarm.what, alarm.advice)


Check = Callable[[], Iterator[Ailment]]
# In the order in which one thing breaks the next; the last ones are asked only of a database that answers.
_FIRST: tuple[Check, ...] = (database_ailments,)
_ALONE: tuple[Check, ...] = (
    broker_ailments,
    worker_ailments,
    disk_ailments,
    mirror_ailments,
    secret_ailments,
    mail_ailments,
    agent_ailments,
)
_OF_ROWS: tuple[Check, ...] = (
    watcher_ailments,
    dispatcher_ailments,
    lease_ailments,
    partition_ailments,
    task_ailments,
    canary_ailments,
)


def diagnose() -> list[Ailment]:
    """All that is found, the cause before what follows from it."""
    found = [one for check in _FIRST for one in check()]
    if database_answers(found):
        found += migration_ailments()
    found += [one for check in _ALONE for one in check()]
    if database_answers(found):
        found += [one for check in _OF_ROWS for one in check()]
    return found
