"""What these tests look at."""

from dataclasses import replace

from server.lab import rounds, work
from server.lab.attempts import life
from server.lab.dispatch.jenkins.jobs import wanted
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.models import Attempt
from server.lab.port import Observed, Origin, Work
from tests.lab.worlds import JenkinsWorld, new_work, starts, until

MACHINE = "vm-haswell"
AGENT = "agent-one"


def defined(world: JenkinsWorld, boot_driver: str) -> Attempt:
    attempt, _ = new_work(MACHINE, boot_driver=boot_driver)
    world.define()
    return attempt


def fresh(attempt: Attempt) -> Attempt:
    return Attempt.objects.select_related("build", "session__machine", "session__series").get(pk=attempt.pk)


def work_of(attempt: Attempt) -> Work:
    return work.work_of(fresh(attempt))


def seen(world: JenkinsWorld, attempt: Attempt) -> Observed:
    return world.port.look([work_of(attempt)]).works[attempt.key].observed


def run_of(attempt: Attempt) -> JenkinsRun:
    return JenkinsRun.objects.get(attempt=attempt)


def started(world: JenkinsWorld, attempt: Attempt) -> None:
    """Submitted by rounds, and its program runs."""
    until(lambda: rounds.reconcile_attempts() and starts(world, attempt.key) > 0)
    until(lambda: seen(world, attempt) is Observed.ALIVE)


def claim(attempt: Attempt, agent: str = AGENT, *, number: int | None = None) -> None:
    """As an agent does that our job's script has started, in that build if there is a number."""
    run = run_of(attempt)
    place = Origin(run.job, number, MACHINE) if number is not None else Origin()
    life.claim_attempt(fresh(attempt), agent, origin=replace(place, script=script_of(attempt)))


def count_of(attempt: Attempt) -> int | None:
    """How often its job was triggered for it."""
    return fresh(attempt).posts


def script_of(attempt: Attempt) -> str:
    return wanted().jobs[run_of(attempt).job].script


def posts(world: JenkinsWorld) -> int:
    return sum(logged.method == "POST" and "buildWithParameters" in logged.path for logged in world.server.requests)
