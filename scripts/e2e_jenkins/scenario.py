"""The steps, one after the other; each says what it found."""

import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress

from scripts.e2e_jenkins.agents import kill_tidemark_agent
from scripts.e2e_jenkins.running import Run, expect, newest, run_of, state_of
from server.builds.models import Build, BuildState
from server.lab.attempts import cancel_attempt, end_session
from server.lab.dispatch.jenkins.answers import JobFacts
from server.lab.dispatch.jenkins.apply import Failure, Finding, Step, look, mended
from server.lab.dispatch.jenkins.client import JenkinsClient, JenkinsError
from server.lab.dispatch.jenkins.definitions import check_job, wanted
from server.lab.health import plan_health_session
from server.lab.hosts import change_health
from server.lab.models import Attempt, AttemptState, Builder, Machine, Session, SessionState

DONE, RUNNING, CANCELED, LOST = AttemptState.DONE, AttemptState.RUNNING, AttemptState.CANCELED, AttemptState.LOST
# Seconds that the builds of the run take, by the number of their tree: two are over at once, three can be disturbed.
QUICK, STOPPED, KILLED, RESTARTED = 0, 1, 2, 3


def build_seconds(lease_seconds: float, restart_seconds: float) -> list[float]:
    """How long each tree's build takes: those that are disturbed outlive the disturbance."""
    return [0, 600, lease_seconds, restart_seconds]


def play(run: Run, dispatcher: JenkinsClient) -> None:
    """All steps. One that fails leaves the others their chance."""
    steps: list[tuple[str, Callable[[Run], str]]] = [
        ("jenkins_apply makes two nodes and their jobs, and then changes nothing", apply_twice),
        ("both Jenkins agents connect", connect_both),
        ("the dispatcher's user sees its jobs as they were defined", lambda _run: check_jobs(dispatcher)),
        ("a build on the one node", build),
        ("a session on the other", session),
        ("cancel a queued run", cancel_queued),
        ("cancel a running one", cancel_running),
        ("a lost agent: its work is done by another attempt", lose_agent),
        ("a machine that boots itself is held, and let go", hold_machine),
    ]
    if run.restart_command:
        steps.append(("the controller restarts under a running build", restart_controller))
    for name, act in steps:
        with run.report.step(name) as step:
            step.said = act(run)


def apply_twice(run: Run) -> str:
    first = [mended(step) if isinstance(step, Step) else step for step in look(run.admin, wanted())]
    failed = [f"{one.what} {one.name}: {one.reason}" for one in first if isinstance(one, Failure)]
    expect(not failed, "; ".join(failed))
    made = [step for step in first if isinstance(step, Step) and step.finding is Finding.MISSING]
    expect(len(made) == len(wanted().jobs) + len(wanted().nodes), f"only {len(made)} were made")
    again = [f"{step.what} {step.name}: {step.finding.value} {step.diff}" for step in _differing(run)]
    expect(not again, f"a second run would change: {'; '.join(again)}")
    return f"{len(made)} made"


def _differing(run: Run) -> list[Step]:
    steps = [step for step in look(run.admin, wanted()) if isinstance(step, Step)]
    return [step for step in steps if step.finding is not Finding.SAME]


def connect_both(run: Run) -> str:
    for node in run.nodes:
        run.connect(node)
    return ", ".join(run.nodes)


def check_jobs(dispatcher: JenkinsClient) -> str:
    problems = [problem for name in wanted().jobs if (problem := check_job(dispatcher, name))]
    expect(not problems, "; ".join(problems))
    facts: JobFacts = dispatcher.job_parameters(next(iter(wanted().jobs)))
    return f"Jenkins {dispatcher.head.version}, session {dispatcher.head.session}, {len(facts.parameters)} parameter"


def build(run: Run) -> str:
    wish = run.site.want(QUICK)
    run.until("the build ends", lambda: _ended(wish))
    wish.refresh_from_db()
    expect(wish.state == BuildState.BUILT, f"{wish.state}: {wish.reason}")
    expect(wish.attempts.count() == 1, f"{wish.attempts.count()} attempts")
    seen = run_of(newest(wish))
    expect(seen.node == run.nodes[0], f"built on {seen.node!r}")
    return f"{seen.job} #{seen.number} on {seen.node}, build id {wish.build_id[:12]}"


def session(run: Run) -> str:
    """No kernel of the run boots: what is looked at is that the machine's own agent says so, boot by boot."""
    made = _plan_session(run, Build.objects.filter(state=BuildState.BUILT).first())
    run.until("the session's agent ends", lambda: state_of(made) in {DONE, CANCELED, LOST})
    attempt = newest(made)
    expect(attempt.state == DONE, f"{attempt.key} is {attempt.state}: {attempt.reason}")
    seen = run_of(attempt)
    expect(seen.node == run.nodes[1], f"ran on {seen.node!r}")
    _cancel_session(made)
    return f"{seen.job} #{seen.number} on {seen.node}, its agent said: {attempt.reason[:80]}"


def _cancel_session(made: Session) -> None:
    """Else it would be tried again beside the next steps."""
    made.refresh_from_db()
    if made.state not in Session.FINAL:
        end_session(made, SessionState.CANCELED, "canceled by the run")
    for attempt in made.attempts.filter(state__in=Attempt.ACTIVE):
        cancel_attempt(attempt, "canceled by the run")


def _plan_session(run: Run, kernel: Build | None) -> Session:
    expect(kernel, "no kernel was built")
    machine = Machine.objects.get(pk=run.site.machine.pk)
    change_health(machine, Machine.Health.GOOD, "for the next step")
    machine.health_build = kernel
    machine.save(update_fields=["health_build"])
    made = plan_health_session(machine, "asked for by the run")
    expect(made, "no session could be planned")
    assert made is not None
    return made


def cancel_queued(run: Run) -> str:
    """The node has one executor. A service that believes in two puts a second run behind the first."""
    _begin(run, run.site.want(STOPPED))
    builder = Builder.objects.filter(pk=run.site.builder.pk)
    builder.update(capacity=2)
    try:
        wish = run.site.want(KILLED)
        run.until("the run waits in Jenkins' queue", lambda: bool(state_of(wish)) and bool(run_of(newest(wish)).why))
        attempt = newest(wish)
        why = run_of(attempt).why
        _cancel(wish)
        run.until("the queued run is gone", lambda: newest(wish).state == CANCELED)
        expect(not any(item.run_id == attempt.key for item in run.admin.queue()), "it still waits in Jenkins")
    finally:
        builder.update(capacity=1)
    return f"it waited: {why}"


def cancel_running(run: Run) -> str:
    """The one behind which the other waited."""
    wish = run.site.want(STOPPED)
    _begin(run, wish)
    attempt = newest(wish)
    _cancel(wish)
    run.until("the running one is over", lambda: newest(wish).state in {CANCELED, DONE})
    run.until("its build ends in Jenkins", lambda: not _is_building(run, attempt.key))
    seen = run_of(newest(wish))
    expect(seen.number is not None, "its number in Jenkins is not known")
    return f"{seen.job} #{seen.number} {run.admin.build(seen.job, seen.number or 0).result}"


def _is_building(run: Run, key: str) -> bool:
    return any(build.building for job in run.admin.jobs() for build in job.builds if build.run_id == key)


def lose_agent(run: Run) -> str:
    node = run.nodes[0]
    wish = run.site.want(KILLED)
    _begin(run, wish)
    first = newest(wish)
    run.agents.kill(node)
    expect(kill_tidemark_agent(run.site.state_of(node), first.key), "its own agent was not found")
    run.connect(node)
    run.until("the first attempt is lost", lambda: _fresh(first.pk) == LOST, patience=run.patience + 120)
    run.until("another one builds it", lambda: _ended(wish))
    wish.refresh_from_db()
    expect(wish.state == BuildState.BUILT, f"{wish.state}: {wish.reason}")
    return f"{first.key} lost, {newest(wish).key} done, one set of artifacts"


def _fresh(pk: int) -> str:
    return str(Attempt.objects.values_list("state", flat=True).get(pk=pk))


def hold_machine(run: Run) -> str:
    """The job hands the key to the machine and ends; the node is kept offline until the machine is free again."""
    Machine.objects.filter(pk=run.site.machine.pk).update(boot_driver="kexec")
    changed = [mended(step) for step in _differing(run)]
    expect(any(isinstance(step, Step) and step.what == "job" for step in changed), "no job was to be changed")
    made = _plan_session(run, Build.objects.filter(state=BuildState.BUILT).first())
    node = run.nodes[1]
    run.until("the node is held for it", lambda: _is_marked(run, node, made))
    run.until("the job has ended", lambda: run_of(newest(made)).result == "SUCCESS")
    reason = run.admin.node(node).reason
    expect(cancel_attempt(newest(made), "canceled by the run"), "it could not be canceled")
    run.until("it is over", lambda: newest(made).state in {CANCELED, LOST}, patience=run.patience + 120)
    expect(run.admin.node(node).temporarily_offline, "let go before the machine said that it is back")
    run.site.say_hello(node)
    run.until("the node is let go", lambda: not run.admin.node(node).temporarily_offline)
    return f"marked {reason!r}, let go when the machine said hello"


def _is_marked(run: Run, node: str, made: Session) -> bool:
    if not state_of(made):
        return False
    facts = run.admin.node(node)
    return facts.temporarily_offline and newest(made).key in facts.reason


def restart_controller(run: Run) -> str:
    wish = run.site.want(RESTARTED)
    _begin(run, wish)
    before = run.admin.head.session
    subprocess.run(shlex.split(run.restart_command), check=True, stdin=subprocess.DEVNULL, timeout=run.patience)
    run.until("the controller answers again", lambda: _session_now(run) not in {"", before})
    run.until("the build ends", lambda: _ended(wish))
    wish.refresh_from_db()
    expect(wish.state == BuildState.BUILT, f"{wish.state}: {wish.reason}")
    return f"session {before} before, {run.admin.head.session} after; {wish.attempts.count()} attempt(s)"


def _session_now(run: Run) -> str:
    with suppress(JenkinsError):
        run.admin.controller()
        return run.admin.head.session
    return ""


def _begin(run: Run, wish: Build) -> None:
    run.until("the build is claimed and compiles", lambda: _compiles(wish))


def _compiles(wish: Build) -> bool:
    return state_of(wish) == RUNNING and newest(wish).progress == "compiling"


def _ended(wish: Build) -> bool:
    wish.refresh_from_db()
    return wish.state in {BuildState.BUILT, BuildState.FAILED}


def _cancel(wish: Build) -> None:
    """As for a superseded series: nobody wants the build, and its attempt is stopped."""
    wish.refresh_from_db()
    attempt = newest(wish)
    wish.advance(BuildState.CANCELED, "canceled by the run")
    expect(cancel_attempt(attempt, "canceled by the run"), f"{attempt.key} is {attempt.state}")
