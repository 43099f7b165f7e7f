"""The steps in which all goes as it should, and in which the service itself calls work off; each says what it found."""

from collections.abc import Callable

from scripts.e2e_jenkins.host import NotRun
from scripts.e2e_jenkins.run import Run, expect, is_final, newest, run_of, state_of, story
from scripts.e2e_jenkins.site import Toy
from server.builds.models import Build, BuildState
from server.core.reasons import Because
from server.lab.attempts.ends import cancel_attempt
from server.lab.dispatch.jenkins.answers import JobFacts
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.configuration import Agreement, Amendment, Failure, look, mended
from server.lab.dispatch.jenkins.jobs import check_job, wanted
from server.lab.models import AttemptState, Builder, Machine, Session, SessionState
from server.results.models import Measurement

StepOf = tuple[str, Callable[[Run], str]]
# Each step that builds has a tree of its own: what was built once is not built again. The last is a branch's head.
QUICK, STOPPED, KILLED, ABORTED, UNWATCHED, TERMED, SLAIN, DISABLED, EDITED, AWAY, CUT, REFUSED, FALSE = range(13)
# Compiling a kernel on two old cores, and booting it four times.
_KERNEL_SECONDS = 3600.0


def toys(lease_seconds: float, restart_seconds: float, many_files: int) -> dict[int, Toy]:
    """What each tree is: the builds that are disturbed outlive the disturbance."""
    made = dict.fromkeys(range(FALSE + 1), Toy())
    made[STOPPED] = Toy(seconds=600)
    made |= dict.fromkeys((KILLED, UNWATCHED), Toy(seconds=lease_seconds))
    made[ABORTED] = Toy(seconds=2 * lease_seconds)
    made |= dict.fromkeys((TERMED, SLAIN), Toy(seconds=restart_seconds))
    made[CUT], made[FALSE] = Toy(files=many_files), Toy(fails_once=True)
    return made


def first_steps(dispatcher: JenkinsClient) -> tuple[StepOf, ...]:
    return (
        ("jenkins_apply makes two nodes and their jobs, and then changes nothing", apply_twice),
        ("both Jenkins agents connect", connect_both),
        ("the dispatcher's user sees its jobs as they were defined", lambda _run: check_jobs(dispatcher)),
        ("a build on the one node", build),
        ("a session on the other boots a kernel and measures", session),
        ("cancel a queued run", cancel_queued),
        ("cancel a running build", cancel_running),
        ("cancel a session in the middle of a boot", cancel_session),
    )


def apply_twice(run: Run) -> str:
    first = [mended(step) if isinstance(step, Amendment) else step for step in look(run.admin, wanted())]
    failed = [f"{one.what} {one.name}: {one.reason}" for one in first if isinstance(one, Failure)]
    expect(not failed, "; ".join(failed))
    made = [step for step in first if isinstance(step, Amendment) and step.finding is Agreement.MISSING]
    expect(len(made) == len(wanted().jobs) + len(wanted().nodes), f"only {len(made)} were made")
    again = [f"{step.what} {step.name}: {step.finding.value} {step.diff}" for step in run.differing()]
    expect(not again, f"a second run would change: {'; '.join(again)}")
    return f"{len(made)} made"


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
    run.finish(wish)
    expect(wish.attempts.count() == 1, f"{wish.attempts.count()} attempts")
    seen = run_of(newest(wish))
    expect(seen.node == run.nodes[0], f"built on {seen.node!r}")
    return f"{seen.job} #{seen.number} on {seen.node}, build id {wish.build_id[:12]}"


def session(run: Run) -> str:
    """A real kernel, compiled by the one node and booted by the other: two boots of each side, every one measured."""
    kernel = run.site.want_real()
    if kernel is None:
        raise NotRun("there is no kernel that boots")
    run.until("the kernel is built", lambda: is_final(kernel), patience=_KERNEL_SECONDS)
    expect(kernel.state == BuildState.BUILT, f"{kernel.state}: {kernel.reason}")
    made = run.plan(kernel)
    run.until("the session is over", lambda: is_final(made), patience=_KERNEL_SECONDS)
    run.expect_unharmed(made)
    expect(made.state == SessionState.DONE, f"{made.state}: {made.reason}")
    seen = run_of(newest(made))
    expect(seen.node == run.nodes[1], f"ran on {seen.node!r}")
    values = Measurement.objects.filter(boot__session=made).count()
    expect(values >= made.boots.count(), f"{values} measurements of {made.boots.count()} boots")
    return f"{seen.job} #{seen.number} on {seen.node}: {made.boots.count()} boots, {values} measurements"


def cancel_queued(run: Run) -> str:
    """The node has one executor. A service that believes in two puts a second run behind the first."""
    run.begin(run.site.want(STOPPED))
    builder = Builder.objects.filter(pk=run.site.builder.pk)
    builder.update(capacity=2)
    try:
        wish = run.site.want(KILLED)
        run.until("the run waits in Jenkins' queue", lambda: bool(state_of(wish)) and bool(run_of(newest(wish)).why))
        attempt = newest(wish)
        why = run_of(attempt).why
        _cancel(wish)
        run.until("the queued run is gone", lambda: newest(wish).state == AttemptState.CANCELED)
        expect(not any(item.run_id == attempt.key for item in run.admin.queue()), "it still waits in Jenkins")
    finally:
        builder.update(capacity=1)
    return f"it waited: {why}"


def cancel_running(run: Run) -> str:
    """The one behind which the other waited. Its end says nothing about its kernel: wanted again, it is built."""
    wish = run.site.want(STOPPED)
    attempt = run.begin(wish)
    _cancel(wish)
    run.until("the running one is over", lambda: newest(wish).state in {AttemptState.CANCELED, AttemptState.DONE})
    run.until("its build ends in Jenkins", lambda: not run.is_building(attempt.key))
    wish.refresh_from_db()
    expect(wish.state == BuildState.CANCELED, f"{wish.state}: {wish.reason}")
    seen = run_of(attempt)
    expect(seen.number is not None, "its number in Jenkins is not known")
    return f"{seen.job} #{seen.number} {run.admin.build(seen.job, seen.number or 0).result}"


def cancel_session(run: Run) -> str:
    """As for a superseded series: nobody wants it, and its end is no verdict on anything."""
    made = run.plan(run.toy())
    attempt = run.begin_session(made)
    expect(cancel_attempt(attempt, Because.BY_PERSON("canceled by the run")), f"{attempt.key} is {attempt.state}")
    run.until("it is canceled", lambda: newest(made).state == AttemptState.CANCELED and is_final(made))
    run.until("its build ends in Jenkins", lambda: not run.is_building(attempt.key))
    machine = Machine.objects.get(pk=made.machine_id)
    expect(machine.health == Machine.Health.GOOD, f"{machine.name} is {machine.health}: {machine.health_reason}")
    outcomes = set(made.boots.exclude(outcome="").values_list("outcome", flat=True))
    expect(not outcomes, f"its boots became {', '.join(outcomes)}")
    seen = run_of(attempt)
    return f"{seen.job} #{seen.number} {run.admin.build(seen.job, seen.number or 0).result}"


def hold_machine(run: Run) -> str:
    """The job hands the key to the machine and ends; the node is kept offline until the machine is free again."""
    Machine.objects.filter(pk=run.site.machine.pk).update(boot_driver="kexec")
    expect(any(isinstance(step, Amendment) and step.what == "job" for step in run.apply()), "no job was to be changed")
    made = run.plan(run.toy())
    node = run.nodes[1]
    run.until("the node is held for it", lambda: _is_marked(run, node, made))
    run.until("the job has ended", lambda: run_of(newest(made)).result == "SUCCESS")
    reason = run.admin.node(node).reason
    # The machine is on its own by now: its Jenkins agent may come and go.
    run.agents.kill(node)
    run.connect(node)
    run.idle()
    run.expect_unharmed(made)
    expect(_is_marked(run, node, made), f"it was let go when its Jenkins agent died: {story(made)}")
    expect(made.attempts.count() == 1, f"it was tried again: {story(made)}")
    expect(cancel_attempt(newest(made), Because.BY_PERSON("canceled by the run")), "it could not be canceled")
    over = {AttemptState.CANCELED, AttemptState.LOST}
    run.until("it is over", lambda: newest(made).state in over, patience=run.patience + 120)
    expect(run.admin.node(node).temporarily_offline, "let go before the machine said that it is back")
    run.site.say_hello(node)
    run.until("the node is let go", lambda: not run.admin.node(node).temporarily_offline)
    return f"marked {reason!r}, kept when its Jenkins agent died, let go when the machine said hello"


def _is_marked(run: Run, node: str, made: Session) -> bool:
    if not state_of(made):
        return False
    facts = run.admin.node(node)
    return facts.temporarily_offline and newest(made).key in facts.reason


def _cancel(wish: Build) -> None:
    """As for a superseded series: nobody wants the build, and its attempt is stopped."""
    wish.refresh_from_db()
    attempt = newest(wish)
    wish.advance(BuildState.CANCELED, Because.BY_PERSON("canceled by the run"))
    expect(cancel_attempt(attempt, Because.BY_PERSON("canceled by the run")), f"{attempt.key} is {attempt.state}")


# It changes the machine: after all that needs an emulator.
LAST_STEPS = (("a machine that boots itself is held, and let go", hold_machine),)
