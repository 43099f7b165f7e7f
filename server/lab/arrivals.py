"""What hosts say besides their work: that an attempt has arrived on a machine that boots itself, and that they live."""

from datetime import timedelta

from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.lab.attempts import UNCLAIMED, move_attempt
from server.lab.dispatch.jenkins.scripts import check_script
from server.lab.hosts import HostHello, follow_attempt, note_hello
from server.lab.models import Attempt, AttemptState, Builder, JenkinsNode, JenkinsRun, Machine
from server.lab.works import take_deadline, work_of

_NEWS_AGAIN = timedelta(seconds=10)


def arrive(
    attempt: Attempt,
    *,
    agent: str,
    host: str,
    job: str = "",
    number: int | None = None,
    node: str = "",
    boot_id: str = "",
    script: str = "",
) -> bool:
    """Note that the attempt has come to its machine; returns whether it may be taken in by now.

    It may once the machine is kept from all other work. Raises `superseded` when the attempt is over, claimed, or
    came in another build: of two builds of one key the first one wins. Raises `job-edited` for a build that runs
    something else than our script. Repeating it is harmless.
    """
    check_script(attempt, script)
    with transaction.atomic():
        row = Attempt.objects.select_for_update(of=("self",)).select_related("session__machine").get(pk=attempt.pk)
        if row.state not in UNCLAIMED:
            raise DomainError("superseded", f"{row.key} is {row.state}: {row.reason}")
        run = JenkinsRun.objects.select_for_update().filter(attempt=row).first()
        if row.arrived_at is None:
            _take_in(row, agent, host)
            if run is not None:
                run.number, run.boot_id = number, boot_id
                run.node = node or run.node
                run.save(update_fields=["number", "node", "boot_id"])
        elif run is not None and (job or run.job, number) != (run.job, run.number):
            raise DomainError("superseded", f"{row.key} arrived in build {run.number}, not in {number}")
    return run is None or _is_held(row)


def _take_in(row: Attempt, agent: str, host: str) -> None:
    """Rounds keep its host from other work from now on; the next one is asked for."""
    row.arrived_at, row.host, row.deadline_at = clock.now(), host[:255], take_deadline()
    row.save(update_fields=["arrived_at", "host", "deadline_at"])
    if row.state == AttemptState.SUBMITTING:
        move_attempt(row, AttemptState.QUEUED, f"arrived with agent {agent[:8]}")
    else:
        follow_attempt(row)
    enqueue("lab.dispatch")


def _is_held(row: Attempt) -> bool:
    """Whether its node is marked offline: for this attempt, or by a person, whose mark is as good."""
    node = JenkinsNode.objects.filter(name=work_of(row).host, temporarily_offline=True).first()
    return node is not None and node.held_for in {"", row.key}


def take_hello(*, token: ApiToken, hello: HostHello) -> None:
    """A host says that it is there. Who holds no machine's or builder's token has no state to be brought up to date."""
    host: Machine | Builder | None
    if token.scope == ApiToken.Scope.MACHINE:
        host = Machine.objects.filter(name=token.subject).first()
    elif token.scope == ApiToken.Scope.BUILDER:
        host = Builder.objects.filter(name=token.subject).first()
    else:
        return
    if host is None:
        raise DomainError("not-found", f"no {token.scope} {token.subject}")
    before, seen = (host.state, getattr(host, "safe", None)), host.last_seen_at
    note_hello(host, hello)
    # Who says hello again and again, and nothing new, costs one round in that time.
    if before != (host.state, getattr(host, "safe", None)) or seen is None or clock.now() - seen > _NEWS_AGAIN:
        enqueue("lab.dispatch")
