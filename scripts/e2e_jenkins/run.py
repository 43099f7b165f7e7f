"""What one run works with, the service's rounds while something is waited for, and the cleaning up."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore

from scripts.e2e_jenkins.host import Agents, Report, StepError
from scripts.e2e_jenkins.site import Site
from server.builds.models import Build, BuildState
from server.core.reasons import Because
from server.lab.attempts.ends import cancel_attempt, end_session
from server.lab.dispatch.jenkins.configuration import AdminClient, Agreement, Amendment, Failure, look, mended
from server.lab.dispatch.jenkins.http import checked
from server.lab.dispatch.jenkins.jobs import wanted
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsRun
from server.lab.dispatch.jenkins.values import JenkinsError
from server.lab.hosts.health import plan_health_session
from server.lab.hosts.state import change_health
from server.lab.models import Attempt, AttemptState, BootState, Builder, Host, Machine, Session, SessionState
from server.lab.rounds import run_round
from server.lab.scheduling.placement import queue_in_order
from server.lab.sweep import sweep

_LARGEST_JAR = 64 * 2**20


@dataclass
class HousekeepingClient(AdminClient):
    """An admin's client with the three calls of the run's own housekeeping, which were not recorded."""

    def fetch_agent(self, to: Path) -> None:
        path = "/jnlpJars/agent.jar"
        to.write_bytes(checked(self._get(path, largest=_LARGEST_JAR), path).content)

    def delete_job(self, job: str) -> None:
        self._delete(f"/job/{quote(job, safe='')}/doDelete", job)

    def delete_node(self, node: str) -> None:
        self._delete(f"/computer/{quote(node, safe='')}/doDelete", node)

    def _delete(self, path: str, name: str) -> None:
        if not self.prefix or not name.startswith(self.prefix):
            raise ValueError(f"{name} was not made by this run")
        self._post(path)


def clean_up(client: HousekeepingClient) -> tuple[list[str], list[str]]:
    """Delete all jobs and nodes with the run's prefix; returns what went, and what could not, with the reason."""
    gone: list[str] = []
    left: list[str] = []
    try:
        jobs = [job.name for job in client.jobs()]
        nodes = [node.name for node in client.nodes() if node.name.startswith(client.prefix)]
    except JenkinsError as error:
        return gone, [f"nothing could be looked for: {error.message}"]
    for what, names, delete in (("job", jobs, client.delete_job), ("node", nodes, client.delete_node)):
        for name in names:
            try:
                delete(name)
                gone.append(f"{what} {name}")
            except JenkinsError as error:
                left.append(f"{what} {name}: {error.message}")
    return gone, left


_PAUSE_SECONDS = 0.2
# Rounds in which something has its chance to go wrong.
ROUNDS = 5


@dataclass
class Run:
    """One run; `admin` is the account that makes and deletes, `patience` how long one wait may take, in seconds."""

    site: Site
    admin: HousekeepingClient
    agents: Agents
    report: Report
    patience: float
    # What restarts the controller by SIGTERM and by SIGKILL; empty: nobody does.
    restart_command: str = ""
    kill_command: str = ""
    # Alarms that were seen since somebody looked: only a person mends those, so none may be false.
    alarms: set[str] = field(default_factory=set)

    @property
    def nodes(self) -> tuple[str, str]:
        return self.site.builder.node_name, self.site.machine.node_name

    def play(self, steps: "Sequence[tuple[str, Callable[[Run], str]]]") -> None:
        """All steps. One that fails leaves the others their chance, and nothing of its own work in their way."""
        for name, act in steps:
            with self.report.step(name) as step:
                step.said = act(self)
            if step.ran and not step.ok:
                self._clear()

    def _clear(self) -> None:
        for build in Build.objects.filter(state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING]):
            build.advance(BuildState.CANCELED, Because.BY_PERSON("canceled by the run"))
        for made in Session.objects.exclude(state__in=Session.FINAL).exclude(attempts__state__in=Attempt.ACTIVE):
            end_session(made, SessionState.CANCELED, Because.BY_PERSON("canceled by the run"))
        for attempt in Attempt.objects.filter(state__in=Attempt.ACTIVE):
            cancel_attempt(attempt, Because.BY_PERSON("canceled by the run"))
        with suppress(StepError):
            self.until("all is over", lambda: not Attempt.objects.filter(state__in=Attempt.ACTIVE).exists())
        hosts: list[Machine | Builder] = [*Machine.objects.all(), *Builder.objects.all()]
        for host in hosts:
            change_health(host, Host.Health.GOOD, "for the next step", actor="the run")

    def until(self, what: str, condition: Callable[[], object], *, patience: float | None = None) -> None:
        """Make the service's rounds until it is so; raises StepError that says what was waited for."""
        end = time.monotonic() + (patience or self.patience)
        while True:
            run_round()
            sweep()
            self.alarms |= set(JenkinsController.objects.exclude(alarm="").values_list("alarm", flat=True))
            if condition():
                return
            if time.monotonic() > end:
                raise StepError(f"{what}: not within {patience or self.patience:g} s; {attempts_now()}")
            time.sleep(_PAUSE_SECONDS)

    def idle(self) -> None:
        left = iter(range(ROUNDS))
        self.until("some rounds are over", lambda: next(left, None) is None)

    def page(self, path: str) -> str:
        """What the service shows its staff there: logs and consoles are for nobody else."""
        opener = build_opener(ProxyHandler({}))
        with _staff_cookie() as cookie:
            request = Request(f"{settings.SITE_URL}{path}", headers={"Cookie": cookie})  # noqa: S310 (ours)
            with opener.open(request, timeout=self.patience) as answer:
                return str(answer.read().decode("utf-8"))

    def connect(self, node: str) -> None:
        """Start the node's Jenkins agent and wait until the controller knows it."""
        self.agents.start(node, self.admin.node_secret(node))
        self.until(f"the agent of {node} connects", lambda: self.admin.node(node).connected)

    def differing(self) -> list[Amendment]:
        """Jobs and nodes that are not as they are defined."""
        steps = [step for step in look(self.admin, wanted()) if isinstance(step, Amendment)]
        return [step for step in steps if step.finding is not Agreement.SAME]

    def apply(self) -> list[Amendment | Failure]:
        """What `manage.py jenkins_apply` does."""
        return [mended(step) for step in self.differing()]

    # --- builds ---------------------------------------------------------------------------

    def begin(self, wish: Build) -> Attempt:
        """Its attempt, once it compiles."""
        self.until("the build is claimed and compiles", lambda: _compiles(wish))
        return newest(wish)

    def finish(self, wish: Build) -> None:
        self.until("the build ends", lambda: is_final(wish))
        expect(wish.state == BuildState.BUILT, f"{wish.state}: {wish.reason}; {story(wish)}")

    def is_building(self, key: str) -> bool:
        return any(build.building for job in self.admin.jobs() for build in job.builds if build.run_id == key)

    # --- sessions ---------------------------------------------------------------------------

    def toy(self) -> Build:
        """A kernel that an emulator starts, and that then stands still."""
        found = Build.objects.filter(state=BuildState.BUILT, revision__tree__name="e2e").first()
        if found is None:
            raise StepError("no kernel was built")
        return found

    def plan(self, kernel: Build) -> Session:
        machine = Machine.objects.get(pk=self.site.machine.pk)
        change_health(machine, Machine.Health.GOOD, "for the next step")
        machine.health_build = kernel
        machine.save(update_fields=["health_build"])
        made = plan_health_session(machine, "asked for by the run")
        if made is None:
            raise StepError("no session could be planned")
        return made

    def begin_session(self, made: Session) -> Attempt:
        """Its attempt, once a boot of it is under way."""
        self.until("a boot is under way", lambda: self.is_booting(made))
        return newest(made)

    def is_booting(self, made: Session) -> bool:
        running = state_of(made) == AttemptState.RUNNING
        return running and made.boots.filter(state=BootState.RUNNING, started_by=newest(made).key).exists()

    def expect_unharmed(self, made: Session) -> None:
        """Nothing that happened to its processes is a verdict on its kernels or a mark against its machine."""
        made.refresh_from_db()
        expect(made.state != SessionState.FAILED, f"{made.state}: {made.reason}")
        harmed = made.boots.filter(state=BootState.FAILED)
        expect(not harmed, f"boots failed: {', '.join(f'{boot.outcome} {boot.reason}' for boot in harmed)}")
        machine = Machine.objects.get(pk=made.machine_id)
        expect(machine.health == Machine.Health.GOOD, f"{machine.name} is {machine.health}: {machine.health_reason}")

    def call_off(self, made: Session) -> None:
        """Else it would stand still beside the next steps."""
        attempt = made.attempts.filter(state__in=Attempt.ACTIVE).first()
        if attempt is None:
            made.refresh_from_db()
            if made.state not in Session.FINAL:
                end_session(made, SessionState.CANCELED, Because.BY_PERSON("canceled by the run"))
        else:
            cancel_attempt(attempt, Because.BY_PERSON("canceled by the run"))
        self.until("the session is called off", lambda: not made.attempts.filter(state__in=Attempt.ACTIVE).exists())


def _compiles(wish: Build) -> bool:
    return state_of(wish) == AttemptState.RUNNING and newest(wish).progress.startswith("compiling")


def is_final(work: Build | Session) -> bool:
    work.refresh_from_db()
    if isinstance(work, Session):
        return work.state in Session.FINAL
    return work.state in {BuildState.BUILT, BuildState.FAILED}


def newest(work: Build | Session) -> Attempt:
    attempt = work.attempts.order_by("-number").first()
    if attempt is None:
        raise StepError(f"there is no attempt at {work}")
    return attempt


def state_of(work: Build | Session) -> str:
    """The state of its newest attempt; empty if there is none yet."""
    attempt = work.attempts.order_by("-number").first()
    return attempt.state if attempt else ""


def run_of(attempt: Attempt) -> JenkinsRun:
    return JenkinsRun.objects.get(attempt=attempt)


def story(work: Build | Session) -> str:
    """Its attempts, in words."""
    return "; ".join(f"{row.key} {row.state}: {row.reason}" for row in work.attempts.order_by("id"))


@contextmanager
def _staff_cookie() -> Iterator[str]:
    """Of a member of staff who is there for one request, and has no password."""
    user = User.objects.create_user(f"e2e-{secrets.token_hex(8)}", is_staff=True)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    try:
        yield f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
    finally:
        session.delete()
        user.delete()


def attempts_now() -> str:
    """All attempts and what waits, in words, for a step that failed."""
    rows = [f"{row.key} {row.state}: {row.reason} {_seen(row)}" for row in Attempt.objects.order_by("id")]
    waiting = [f"{wait.kind} {wait.id} waits: {wait.reason}" for wait in queue_in_order()]
    return "; ".join(rows + waiting) or "no attempt"


def _seen(attempt: Attempt) -> str:
    run = JenkinsRun.objects.filter(attempt=attempt).first()
    return f"({run.job} #{run.number} {run.result or run.why})" if run else ""


def expect(condition: object, said: str) -> None:
    if not condition:
        raise StepError(said)
