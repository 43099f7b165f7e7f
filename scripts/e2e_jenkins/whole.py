"""One run from its site to its cleaning up, with the steps in which people and the controller disturb it."""

import shlex
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import cast

from django.conf import settings
from django.core.management import call_command

from scripts.e2e_jenkins.host import Agents, Forms, NotRun, Report, StepError, is_working, kill_tidemark_agent
from scripts.e2e_jenkins.run import (
    ROUNDS,
    HousekeepingClient,
    Run,
    clean_up,
    expect,
    is_final,
    newest,
    run_of,
    state_of,
    story,
)
from scripts.e2e_jenkins.scenario import (
    ABORTED,
    AWAY,
    CUT,
    DISABLED,
    EDITED,
    FALSE,
    KILLED,
    LAST_STEPS,
    REFUSED,
    SLAIN,
    TERMED,
    UNWATCHED,
    first_steps,
    toys,
)
from scripts.e2e_jenkins.site import MANY, RealKernel, make_site
from server.builds.models import BuildState
from server.core.reasons import Because
from server.lab.dispatch.jenkins.adapter import JenkinsDispatcher
from server.lab.dispatch.jenkins.client import wire_from_settings
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.jobs import job_name, own_mark, wanted
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob
from server.lab.dispatch.jenkins.values import JenkinsError
from server.lab.models import Attempt, AttemptState, Builder, Host
from server.lab.port import WorkKind, dispatcher

# The service asks once a minute whether an alarm is over.
_PROBE_SECONDS = 90.0
# A process that Jenkins tells to end is waited for some 5 s; git is one, and the agent another.
_GRACE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.01
_OTHER_MARK = "Tidemark (another-service-): "


def abort_in_page(run: Run) -> str:
    """A person presses stop beside both builds in Jenkins' pages: the work is done by others."""
    wish, made = run.site.want(ABORTED), run.plan(run.toy())
    # Booting takes longer to be seen: the build must not be over by then.
    booting, compiling = run.begin_session(made), run.begin(wish)
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
    expect(newest(wish).pk != compiling.pk, f"it had ended before the stop came: {story(wish)}")
    _expect_good_builder()
    return f"{story(wish)}; {story(made)}"


def abort_checkout(run: Run) -> str:
    """A person presses stop while git writes the files: the agent is gone soon, and its checkout is still good."""
    node = run.nodes[0]
    state = run.site.state_of(node)
    source = state / "work" / "e2e" / "src"
    wish = run.site.want(CUT)
    run.until("git writes the files", lambda: _is_writing(source))
    first = newest(wish)
    seen = run_of(first)
    expect(seen.number is not None, f"{first.key}: its number in Jenkins is not known")
    mark = source / ".git" / "e2e-was-here"
    mark.touch()
    run.admin.stop(seen.job, seen.number or 0)
    began = time.monotonic()
    run.until(
        "its agent has ended and the executor is free",
        lambda: not is_working(state, first.key) and not run.admin.node(node).busy_with,
        patience=_GRACE_SECONDS,
    )
    seconds = time.monotonic() - began
    # Git moves it when all files are there.
    head = (source / ".git" / "HEAD").read_text(encoding="ascii").strip()
    expect(head != wish.revision.sha, "git had written all files before the stop came")
    run.until("the attempt is over", lambda: _fresh(first) not in Attempt.ACTIVE)
    run.finish(wish)
    expect(newest(wish).pk != first.pk, f"it was not stopped: {story(wish)}")
    first.refresh_from_db()
    expect(first.reason_code != Because.INFRASTRUCTURE, f"it is held against the builder: {first.reason}")
    expect(mark.exists(), "the checkout was made anew")
    mark.unlink()
    _expect_good_builder()
    return f"the agent ended in {seconds:.1f} s; {story(wish)}"


def _is_writing(source: Path) -> bool:
    """Looks often: between two rounds git may have written all."""
    end = time.monotonic() + _LOOK_SECONDS
    while time.monotonic() < end:
        if (source / ".git" / "index.lock").exists() and (source / MANY).exists():
            return True
        time.sleep(_LOOK_AGAIN_SECONDS)
    return False


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


def lose_agent_of_session(run: Run) -> str:
    """First Jenkins' agent dies alone, then with what it ran: by whichever attempt, the session goes on."""
    node = run.nodes[1]
    state = run.site.state_of(node)
    made = run.plan(run.toy())
    first = run.begin_session(made)
    run.agents.kill(node)
    run.connect(node)
    run.idle()
    run.expect_unharmed(made)
    run.until("it boots on, or anew", lambda: run.is_booting(made) and is_working(state, newest(made).key))
    second = newest(made)
    run.agents.kill(node)
    expect(kill_tidemark_agent(state, second.key), "its own agent was not found")
    run.connect(node)
    run.until("the attempt is lost", lambda: _fresh(second) == AttemptState.LOST, patience=run.patience + 120)
    run.expect_unharmed(made)
    run.until("another attempt boots", lambda: newest(made).pk != second.pk and run.is_booting(made))
    run.expect_unharmed(made)
    run.call_off(made)
    expect(run.admin.node(node).connected, f"{node} was cut off")
    return f"{'went on' if first.pk == second.pk else 'began anew'} without agent.jar; {story(made)}"


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


def misconfigure_builder(run: Run) -> str:
    """The service refuses the builder's own token: its builds come back empty, and only the builder is marked."""
    name, file = run.site.builder.name, run.site.token_of(run.nodes[0])
    good = file.read_text(encoding="ascii")
    wish = run.site.want(REFUSED)
    builder = Builder.objects.filter(pk=run.site.builder.pk)
    file.write_text("0" * len(good), encoding="ascii")
    try:
        run.until("the builder is taken out", lambda: builder.filter(health=Host.Health.QUARANTINED).exists())
        tried = wish.attempts.count()
        run.idle()
        expect(wish.attempts.count() == tried, f"it is tried on: {story(wish)}")
        wish.refresh_from_db()
        expect(wish.state == BuildState.WANTED, f"the work was not kept: {wish.state}: {wish.reason}")
        for path in (f"/builders/{name}/", f"/builds/{wish.pk}/"):
            expect("authentication-failed" in run.page(path), f"{path} does not tell what the console says")
    finally:
        file.write_text(good, encoding="ascii")
    call_command("builder", name, "--release", "it has its token again", "--by", "the run", stdout=StringIO())
    run.finish(wish)
    return f"taken out after {tried} builds, told on both pages, and built when it was mended"


def ask_for_it_again(run: Run) -> str:
    """A compiler fell over once, and the kernel was blamed: a person has it built again, and it builds."""
    wish = run.site.want(FALSE)
    run.until("the build ends", lambda: is_final(wish))
    expect(wish.state == BuildState.FAILED, f"{wish.state}: {wish.reason}")
    told = wish.reason
    call_command("build", str(wish.pk), "--again", "the compiler fell over", "--by", "the run", stdout=StringIO())
    run.finish(wish)
    _expect_good_builder()
    return f"failed: {told}; built when it was asked for again"


def leave_other_service(run: Run) -> str:
    """A node and a job of another service, the node held by it: neither is listed, changed or let go."""
    node, job = f"{settings.JENKINS_PREFIX}other", f"{settings.JENKINS_PREFIX}build-other"
    ours = wanted().nodes[run.nodes[0]]
    about = f"{_OTHER_MARK}builder other. Made by jenkins_apply."
    run.admin.create_node(replace(ours, name=node, description=about, folder=f"{settings.JENKINS_FOLDER}/{node}"))
    run.admin.create_job(job, run.admin.job_xml(_build_job(run)).decode().replace(own_mark(), _OTHER_MARK))
    held = f"{_OTHER_MARK}session-1-1"
    run.admin.toggle_offline(node, held)
    before = run.admin.node_xml(node), run.admin.job_xml(job)
    run.idle()
    listed = [f"{step.what} {step.name}: {step.finding.value}" for step in run.differing()]
    expect(not listed, f"jenkins_apply would say: {'; '.join(listed)}")
    run.apply()
    expect((run.admin.node_xml(node), run.admin.job_xml(job)) == before, "one of them was changed")
    facts = run.admin.node(node)
    expect(facts.temporarily_offline and facts.reason == held, f"the mark became {facts.reason!r}")
    run.admin.delete_node(node)
    run.admin.delete_job(job)
    return f"{node}, held by {held!r}, and {job} were left alone"


def disable_job(run: Run) -> str:
    job = _build_job(run)
    xml = run.admin.job_xml(job).decode()
    expect("<disabled>false</disabled>" in xml, "its configuration says nothing of being disabled")
    run.admin.update_job(job, xml.replace("<disabled>false</disabled>", "<disabled>true</disabled>"))
    wish = run.site.want(DISABLED)
    run.until("it is told", lambda: JenkinsJob.objects.filter(name=job).exclude(problem="").exists())
    told = JenkinsJob.objects.get(name=job).trouble
    run.idle()
    wish.refresh_from_db()
    expect(wish.state == BuildState.WANTED, f"{wish.state}: {wish.reason}")
    taken = wish.attempts.filter(posts__gt=0).count()
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
    run.idle()
    expect(wish.attempts.filter(posts__gt=0).count() == 1, f"it was tried again: {story(wish)}")
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
    run.idle()
    expect(not state_of(wish), f"work was given to it: {story(wish)}")
    facts = run.admin.node(node)
    expect(facts.temporarily_offline and facts.reason == "new disks", f"the mark became {facts.reason!r}")
    run.admin.toggle_offline(node)
    run.finish(wish)
    return f"nothing went to {node} in {ROUNDS} rounds"


def end_controller(run: Run) -> str:
    return _restart(run, run.restart_command, TERMED, "JENKINS_RESTART_CMD")


def kill_controller(run: Run) -> str:
    return _restart(run, run.kill_command, SLAIN, "JENKINS_KILL_CMD")


def _restart(run: Run, command: str, number: int, variable: str) -> str:
    """Under a build and a session: neither is blamed, and both go on, by whichever attempt."""
    if not command:
        raise NotRun(f"{variable} names no command")
    wish, made = run.site.want(number), run.plan(run.toy())
    run.begin_session(made)
    run.begin(wish)
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


def _fresh(attempt: Attempt) -> str:
    return str(Attempt.objects.values_list("state", flat=True).get(pk=attempt.pk))


def _build_job(run: Run) -> str:
    return job_name(WorkKind.BUILD, run.site.builder.name)


def _expect_good_builder() -> None:
    sick = Builder.objects.exclude(health=Host.Health.GOOD)
    expect(not sick, "; ".join(f"{one.name} is {one.health}: {one.health_reason}" for one in sick))


DISTURBANCES = (
    ("a person aborts a build and a session", abort_in_page),
    ("a person aborts a build while its checkout is written", abort_checkout),
    ("a lost agent: its work is done by another attempt", lose_agent),
    ("a session's agent is lost", lose_agent_of_session),
    ("the token is refused", refuse_token),
    ("a builder's own token is refused", misconfigure_builder),
    ("a build that failed falsely is asked for again", ask_for_it_again),
    ("another service's node and job are left alone", leave_other_service),
    ("a person disables a job", disable_job),
    ("a person edits a job's script", edit_job),
    ("a person puts a node offline", put_offline),
    ("the controller is ended and started (SIGTERM) under a build and a session", end_controller),
    ("the controller is killed and started (SIGKILL) under a build and a session", kill_controller),
)


@dataclass(frozen=True)
class Wishes:
    """What the operator said. `jar`: where agent.jar is put; None where no agent needs it."""

    prefix: str
    service_url: str
    folder: Path
    admin: str
    admin_token_file: Path
    lease_seconds: float
    patience: float
    # How long the build runs under which the controller restarts.
    restart_seconds: float
    # More than git writes until a stop has gone through the controller.
    many_files: int
    restart_command: str = ""
    kill_command: str = ""
    kernel: RealKernel | None = None
    jar: Path | None = None


def play_whole(wishes: Wishes, agents: Agents, forms: Forms, report: Report) -> None:
    """Make the site, play all steps, and remove what is left on the controller, also after an exception."""
    trees = list(toys(wishes.lease_seconds, wishes.restart_seconds, wishes.many_files).values())
    site = make_site(wishes.prefix, wishes.folder, wishes.service_url, trees, wishes.kernel)
    there = wire_from_settings()
    wire = Wire(there.url, wishes.admin, wishes.admin_token_file, there.ca_file, there.seconds)
    admin = HousekeepingClient(wire, prefix=wishes.prefix, observe=forms.check)
    client = cast(JenkinsDispatcher, dispatcher()).client
    client.observe = forms.check
    commands = (wishes.restart_command, wishes.kill_command)
    run = Run(site, admin, agents, report, wishes.patience, *commands)
    try:
        with report.step("the controller answers") as step:
            quiet = admin.controller().quieting_down
            if wishes.jar is not None:
                admin.fetch_agent(wishes.jar)
            step.said = f"Jenkins {admin.head.version}, clock {admin.head.skew_seconds or 0:+.0f} s" + (
                ", is about to shut down" if quiet else ""
            )
        run.play((*first_steps(client), *DISTURBANCES, *LAST_STEPS))
    finally:
        with report.step("cleaned up") as step:
            stopped = agents.stop_all()
            gone, left = clean_up(admin)
            client.close()
            admin.close()
            step.said = f"removed {', '.join(gone) or 'nothing'}; stopped {len(stopped)} agents"
            if left:
                raise StepError(f"left behind: {'; '.join(left)}; {step.said}")
