"""The steps in which people, agents and the controller disturb what runs: it is done all the same, nobody is blamed."""

import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from scripts.e2e_jenkins.agents import kill_tidemark_agent
from scripts.e2e_jenkins.report import NotRun
from scripts.e2e_jenkins.running import Run, expect, newest, run_of, state_of, story
from scripts.e2e_jenkins.scenario import ABORTED, AWAY, DISABLED, EDITED, KILLED, SLAIN, TERMED, UNWATCHED
from server.builds.models import BuildState
from server.lab.dispatch.base import Kind
from server.lab.dispatch.jenkins.client import JenkinsError
from server.lab.dispatch.jenkins.definitions import job_name
from server.lab.models import Attempt, AttemptState, Builder, Host, JenkinsController, JenkinsJob, JenkinsRun

# Rounds in which something has its chance to go wrong.
_ROUNDS = 5
# The service asks once a minute whether an alarm is over.
_PROBE_SECONDS = 90.0


def abort_in_page(run: Run) -> str:
    """A person presses stop beside both builds in Jenkins' pages: the work is done by others."""
    wish, made = run.site.want(ABORTED), run.plan(run.toy())
    compiling, booting = run.begin(wish), run.begin_session(made)
    for attempt in (compiling, booting):
        seen = run_of(attempt)
        expect(seen.number is not None, f"{attempt.key}: its number in Jenkins is not known")
        run.admin.stop(seen.job, seen.number or 0)
    run.until("both are over", lambda: not ({_fresh(compiling), _fresh(booting)} & set(Attempt.ACTIVE)))
    run.expect_unharmed(made)
    run.until("another attempt boots", lambda: newest(made).pk != booting.pk and run.begin_session(made))
    run.expect_unharmed(made)
    run.call_off(made)
    run.finish(wish)
    _expect_good_builder()
    return f"{story(wish)}; {story(made)}"


def lose_agent(run: Run) -> str:
    node = run.nodes[0]
    wish = run.site.want(KILLED)
    first = run.begin(wish)
    run.agents.kill(node)
    expect(kill_tidemark_agent(run.site.state_of(node), first.key), "its own agent was not found")
    run.connect(node)
    run.until("the first attempt is lost", lambda: _fresh(first) == AttemptState.LOST, patience=run.patience + 120)
    run.finish(wish)
    return f"{first.key} lost, {newest(wish).key} done, one set of artifacts"


def refuse_token(run: Run) -> str:
    """The token is no good any more: told, nothing fails for it, and over as soon as there is a good one."""
    wish = run.site.want(UNWATCHED)
    run.begin(wish)
    file = Path(settings.JENKINS_TOKEN_FILE)
    good = file.read_bytes()
    run.alarms.clear()
    file.write_bytes(b"0" * 34)
    try:
        run.until("it is told", lambda: run.alarms)
        told = next(iter(run.alarms))
        run.finish(wish)
    finally:
        file.write_bytes(good)
    controller = JenkinsController.objects.filter(url=settings.JENKINS_URL)
    run.until("the alarm is over", lambda: controller.filter(alarm="").exists(), patience=run.patience + _PROBE_SECONDS)
    run.alarms.clear()
    expect(wish.attempts.count() == 1, f"{wish.attempts.count()} attempts: {story(wish)}")
    return told[:80]


def disable_job(run: Run) -> str:
    job = _build_job(run)
    xml = run.admin.job_xml(job).decode()
    expect("<disabled>false</disabled>" in xml, "its configuration says nothing of being disabled")
    run.admin.update_job(job, xml.replace("<disabled>false</disabled>", "<disabled>true</disabled>"))
    wish = run.site.want(DISABLED)
    run.until("it is told", lambda: JenkinsJob.objects.filter(name=job).exclude(problem="").exists())
    told = JenkinsJob.objects.get(name=job).trouble
    _idle(run)
    wish.refresh_from_db()
    expect(wish.state == BuildState.WANTED, f"{wish.state}: {wish.reason}")
    taken = JenkinsRun.objects.filter(attempt__build=wish, posts__gt=0).count()
    expect(not taken, f"{taken} triggers were taken in")
    run.apply()
    run.finish(wish)
    return told


def edit_job(run: Run) -> str:
    """Somebody writes a line into the job's script; nothing that the service may read shows it."""
    job = _build_job(run)
    xml = run.admin.job_xml(job).decode()
    edited = xml.replace("#!/bin/sh\n", "#!/bin/sh\necho edited by hand\n", 1)
    expect(edited != xml, "its script does not begin as ours does")
    run.admin.update_job(job, edited)
    wish = run.site.want(EDITED)
    run.until("it is told", lambda: JenkinsJob.objects.filter(name=job).exclude(edited_at=None).exists())
    told = JenkinsJob.objects.get(name=job).trouble
    run.until("its attempt is over", lambda: state_of(wish) == AttemptState.LOST)
    _idle(run)
    expect(wish.attempts.filter(jenkins_run__posts__gt=0).count() == 1, f"it was tried again: {story(wish)}")
    _expect_good_builder()
    run.apply()
    run.finish(wish)
    return told


def put_offline(run: Run) -> str:
    """A person marks the node offline: nothing goes there, and nobody but a person brings it back."""
    node = run.nodes[0]
    run.admin.toggle_offline(node, "new disks")
    builder = Builder.objects.filter(pk=run.site.builder.pk)
    run.until("it is told", lambda: builder.filter(state=Host.State.OFFLINE).exists())
    wish = run.site.want(AWAY)
    _idle(run)
    expect(not state_of(wish), f"work was given to it: {story(wish)}")
    facts = run.admin.node(node)
    expect(facts.temporarily_offline and facts.reason == "new disks", f"the mark became {facts.reason!r}")
    run.admin.toggle_offline(node)
    run.finish(wish)
    return f"nothing went to {node} in {_ROUNDS} rounds"


def end_controller(run: Run) -> str:
    return _restart(run, run.restart_command, TERMED, "JENKINS_RESTART_CMD")


def kill_controller(run: Run) -> str:
    return _restart(run, run.kill_command, SLAIN, "JENKINS_KILL_CMD")


def _restart(run: Run, command: str, number: int, variable: str) -> str:
    """Under a build and a session: neither is blamed, and both go on, by whichever attempt."""
    if not command:
        raise NotRun(f"{variable} names no command")
    wish, made = run.site.want(number), run.plan(run.toy())
    run.begin(wish)
    run.begin_session(made)
    run.alarms.clear()
    before = run.admin.head.session
    subprocess.run(shlex.split(command), check=True, stdin=subprocess.DEVNULL, timeout=run.patience)
    run.until("the controller answers again", lambda: _session_now(run) not in {"", before})
    for node in run.nodes:
        run.until(f"{node} is back", lambda node=node: run.admin.node(node).connected)  # type: ignore[misc]
    run.finish(wish)
    run.begin_session(made)
    run.expect_unharmed(made)
    run.call_off(made)
    _expect_good_builder()
    expect(not run.alarms, f"a false alarm: {'; '.join(run.alarms)}")
    return f"session {before} before, {run.admin.head.session} after; {story(wish)}; {story(made)}"


def _session_now(run: Run) -> str:
    with suppress(JenkinsError):
        run.admin.controller()
        return run.admin.head.session
    return ""


def _idle(run: Run) -> None:
    left = iter(range(_ROUNDS))
    run.until("some rounds are over", lambda: next(left, None) is None)


def _fresh(attempt: Attempt) -> str:
    return str(Attempt.objects.values_list("state", flat=True).get(pk=attempt.pk))


def _build_job(run: Run) -> str:
    return job_name(Kind.BUILD, run.site.builder.name)


def _expect_good_builder() -> None:
    sick = Builder.objects.exclude(health=Host.Health.GOOD)
    expect(not sick, "; ".join(f"{one.name} is {one.health}: {one.health_reason}" for one in sick))


DISTURBANCES = (
    ("a person aborts a build and a session", abort_in_page),
    ("a lost agent: its work is done by another attempt", lose_agent),
    ("the token is refused", refuse_token),
    ("a person disables a job", disable_job),
    ("a person edits a job's script", edit_job),
    ("a person puts a node offline", put_offline),
    ("the controller is ended and started (SIGTERM) under a build and a session", end_controller),
    ("the controller is killed and started (SIGKILL) under a build and a session", kill_controller),
)
