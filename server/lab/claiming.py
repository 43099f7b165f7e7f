"""Claims: an agent process takes an attempt, and is the only one that does."""

import re
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.lab.dispatch.jenkins.scripts import check_script
from server.lab.models import Attempt, AttemptState, JenkinsRun
from server.lab.moving import UNCLAIMED, lock_attempt, move_attempt
from server.lab.works import end_deadline, kind_of, work_of

# Texts of many kilobytes, which no agent's request needs: there is one each few seconds of each host.
_LONG = (
    "log",
    "build__log_tail",
    "build__first_error",
    "session__base_build__log_tail",
    "session__base_build__first_error",
    "session__patched_build__log_tail",
    "session__patched_build__first_error",
)
_KEY = re.compile(r"(build|session|power-cycle)-[0-9-]{1,50}")

# An answer that was lost on its way is asked for again by then.
_ASKS_AGAIN = timedelta(minutes=10)


def find_attempt(*, key: str, token: ApiToken) -> Attempt:
    """The attempt that this token may touch; one that it may not is as unknown as one that is not there."""
    attempt = (
        Attempt.objects.filter(key=key if _KEY.fullmatch(key) else "")
        .select_related(
            "build__revision__tree",
            "build__config",
            "build__toolchain",
            "builder",
            "machine",
            "power_cycle__machine",
            "session__machine__config",
            "session__base_build",
            "session__patched_build",
            "session__series",
        )
        .defer(*_LONG)
        .first()
    )
    if attempt is None:
        raise DomainError("not-found", f"no attempt {key}")
    work = work_of(attempt)
    if token.scope != work.scope or token.subject != work.subject:
        raise DomainError("not-found", f"no attempt {key} for the holder of this token")
    return attempt


def claim_attempt(
    attempt: Attempt,
    agent: str,
    *,
    host: str = "",
    job: str = "",
    number: int | None = None,
    node: str = "",
    boot_id: str = "",
    script: str = "",
) -> None:
    """Give the attempt to this agent process. Raises `superseded` when it is over or another agent has it.

    `job`, `number`, `node` and `boot_id` say in which Jenkins build it runs, `script` is the hash of what that runs:
    raises `job-edited` where that is not ours. Where one build has handed the attempt over to its machine, another
    build of the same key gets nothing.
    """
    check_script(attempt, script)
    with transaction.atomic():
        lock_attempt(attempt)
        if attempt.state == AttemptState.RUNNING and attempt.agent == agent:
            return
        if attempt.state not in UNCLAIMED:
            raise DomainError("superseded", f"{attempt.key} is {attempt.state}: {attempt.reason}")
        run = JenkinsRun.objects.select_for_update().filter(attempt=attempt).first()
        if run is not None and number is not None:
            if attempt.arrived_at is not None and (run.job, run.number) != (job, number):
                raise DomainError("superseded", f"{attempt.key} arrived in build {run.number}, not in {number}")
            JenkinsRun.objects.filter(pk=run.pk, job=job).update(number=number, node=node, boot_id=boot_id)
        won = _take(attempt, agent, host)
    if not won:
        raise DomainError("superseded", f"{attempt.key} went to another agent or its work is over")


def _take(attempt: Attempt, agent: str, host: str) -> bool:
    fields = {"agent": agent, "host": host[:255], "lease_until": lease_end(), "deadline_at": end_deadline(attempt)}
    won = move_attempt(attempt, AttemptState.RUNNING, f"claimed by agent {agent[:8]}", **fields)
    work = attempt.build or attempt.session or attempt.power_cycle
    assert work is not None
    if won and not (work.state == "dispatched" and work.advance("running", f"agent of {attempt.key} works")):
        # A result out of the spool ended the work before this attempt came to it.
        move_attempt(attempt, AttemptState.CANCELED, f"the {kind_of(work)} is over already")
        return False
    return won


def allow_time(attempt: Attempt, boot_seconds: float) -> None:
    """Set when a claimed session is stopped, now that is known how long its agent gives one boot.

    An agent that asks again much later, whatever for, gets no more time by that.
    """
    lately = clock.now() - _ASKS_AGAIN
    Attempt.objects.filter(pk=attempt.pk, state=AttemptState.RUNNING, state_since__gte=lately).update(
        deadline_at=end_deadline(attempt, boot_seconds)
    )


def lease_end() -> datetime:
    return clock.now() + timedelta(seconds=settings.LEASE_SECONDS)
