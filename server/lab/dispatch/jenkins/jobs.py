"""Which jobs and nodes the lab needs on its controller, and whether a job still is as it was defined: one that
somebody else edited gets nothing.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from xml.sax.saxutils import escape

import structlog
from django.conf import settings
from django.db.models import Q

from server.core import clock
from server.lab.dispatch.jenkins.answers import RUN_ID
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.models import JenkinsJob
from server.lab.dispatch.jenkins.values import JenkinsError, Missing
from server.lab.models import Builder, Host, Machine
from server.lab.port import WorkKind
from server.lab.work import LOCAL_BUILDER, boots_itself

_PLACE = re.compile(r"\{\{([a-z]+)\}\}")


@cache
def template(name: str) -> str:
    """A file of agents/jenkins."""
    path = settings.BASE_DIR / "agents" / "jenkins" / name
    return str(path.read_text(encoding="utf-8"))


def filled(name: str, values: Mapping[str, str]) -> str:
    """A template of XML with all its places filled in, as text that no value can leave."""
    return _PLACE.sub(lambda match: escape(values[match[1]]), template(name))


def filled_script(name: str, values: Mapping[str, str]) -> str:
    """A template of a shell script; the values are quoted for the shell already."""
    return _PLACE.sub(lambda match: values[match[1]], template(name))


# What Jenkins takes as a name, and a label expression as one label without quotes.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")


@dataclass(frozen=True)
class JobDefinition:
    """One job: its configuration as XML; `description` ends with the hash of all the rest.

    `script` is the SHA-256 of what it runs, which its builds tell of themselves.
    """

    name: str
    node: str
    description: str
    script: str
    xml: str


@dataclass(frozen=True)
class NodeDefinition:
    """One node: its configuration as XML, and what its creation asks for."""

    name: str
    executors: int
    labels: str
    folder: str
    description: str
    xml: str


@dataclass(frozen=True)
class Wanted:
    """All the lab needs; `problems` name hosts that cannot be defined, and why."""

    jobs: dict[str, JobDefinition]
    nodes: dict[str, NodeDefinition]
    problems: tuple[str, ...]


def own_mark() -> str:
    """Begins all that this service writes on nodes and jobs; what bears another is somebody else's.

    Services that share a controller differ by their prefix.
    """
    return f"Tidemark ({settings.JENKINS_PREFIX}): "


def job_name(kind: WorkKind, subject: str = "") -> str:
    """Name of the job for work of a kind: of a machine's sessions, of a builder's builds, or of power cycles."""
    if kind is WorkKind.POWER_CYCLE:
        return f"{settings.JENKINS_PREFIX}{WorkKind.POWER_CYCLE}"
    return f"{settings.JENKINS_PREFIX}{kind}-{subject}"


def name_problem(name: str) -> str:
    """Why Jenkins would not take it as a name of a job or node; empty if it does."""
    if _NAME.fullmatch(name):
        return ""
    return f"{name!r}: names have 1 to 100 letters, digits, '_', '-' and '.', begin with no '-' or '.', end with no '.'"


def wanted() -> Wanted:
    """Definitions for all enabled machines and builders that are not retired, and for power cycles."""
    jobs: list[JobDefinition] = []
    nodes: list[NodeDefinition] = []
    problems: list[str] = []
    for host in _hosts():
        job = _job_of(host)
        problem = name_problem(host.node_name) or name_problem(job.name)
        if host.node_name in {node.name for node in nodes}:
            problem = f"its node {host.node_name} is another host's already"
        if problem:
            problems.append(f"{_kind_of(host)} {host.name}: {problem}")
            continue
        jobs.append(job)
        nodes.append(_node_of(host))
    if settings.LAB_CONTROL:
        jobs.append(_power_cycle())
    return Wanted({job.name: job for job in jobs}, {node.name: node for node in nodes}, tuple(problems))


def check_job(client: JenkinsClient, name: str) -> str:
    """Why nothing must be triggered in the job; empty if it is as we defined it. Raises JenkinsError."""
    definition = wanted().jobs.get(name)
    if definition is None:
        return f"{name} is no job of the lab as it is now"
    try:
        facts = client.job_parameters(name)
    except Missing:
        return f"{name} is not there, or hidden from the user {client.wire.user}: run manage.py jenkins_apply"
    if not facts.buildable:
        return f"{name} is disabled"
    if facts.parameters != ((RUN_ID, "StringParameterDefinition"),):
        found = ", ".join(f"{parameter} ({kind})" for parameter, kind in facts.parameters) or "none"
        return f"{name} has other parameters than {RUN_ID}: {found}; run manage.py jenkins_apply"
    if facts.description != definition.description:
        return f"{name} was edited, or is of another version of Tidemark: run manage.py jenkins_apply"
    return ""


def _hosts() -> list[Host]:
    machines = Machine.objects.filter(enabled=True).exclude(health=Host.Health.RETIRED).order_by("name")
    builders = Builder.objects.filter(enabled=True).exclude(health=Host.Health.RETIRED).order_by("name")
    return [*machines.select_related("uarch"), *builders.exclude(name=LOCAL_BUILDER)]


def _kind_of(host: Host) -> str:
    return "machine" if isinstance(host, Machine) else "builder"


def _job_of(host: Host) -> JobDefinition:
    if isinstance(host, Machine):
        # One that boots itself has an agent of its own, to which the job only hands the key.
        script = "install.sh" if boots_itself(host) else "run.sh"
        return _job(job_name(WorkKind.SESSION, host.name), host.node_name, f"sessions of machine {host.name}", script)
    return _job(job_name(WorkKind.BUILD, host.name), host.node_name, f"kernel builds on {host.name}", "run.sh")


def _power_cycle() -> JobDefinition:
    return _job(job_name(WorkKind.POWER_CYCLE), settings.LAB_CONTROL, "switches machines off and on", "run.sh")


def _job(name: str, node: str, about: str, script: str) -> JobDefinition:
    command = filled_script(script, {"agent": shlex.quote(settings.JENKINS_AGENT)})
    values = {"node": node, "script": command, "description": ""}
    digest = hashlib.sha256(filled("job.xml", values).encode()).hexdigest()[:16]
    description = f"{own_mark()}{about}. Made by jenkins_apply; changes by hand stop it. [{digest}]"
    # Without the last line's end, as the script itself reads it: what Jenkins' page does to that is no edit.
    hashed = hashlib.sha256(command.rstrip("\n").encode()).hexdigest()
    return JobDefinition(name, node, description, hashed, filled("job.xml", {**values, "description": description}))


def _node_of(host: Host) -> NodeDefinition:
    labels = ["tidemark", _kind_of(host)]
    executors = 1
    if isinstance(host, Machine):
        labels += [host.uarch.name, host.uarch.arch]
    elif isinstance(host, Builder):
        labels += host.arches
        executors = host.capacity
    values = {
        "name": host.node_name,
        "description": f"{own_mark()}{_kind_of(host)} {host.name}. Made by jenkins_apply.",
        # Of its own: several nodes may be on one host.
        "folder": f"{settings.JENKINS_FOLDER}/{host.node_name}",
        "executors": str(executors),
        "labels": " ".join(label for label in labels if _NAME.fullmatch(label)),
    }
    return NodeDefinition(
        name=host.node_name,
        executors=executors,
        labels=values["labels"],
        folder=values["folder"],
        description=values["description"],
        xml=filled("node.xml", values),
    )


log = structlog.get_logger(__name__)

# People edit jobs rarely, and at once see what comes of it here.
_CHECK_EVERY = timedelta(minutes=10)
# Who puts one right is not kept waiting.
_CHECK_UNFIT_EVERY = timedelta(minutes=1)
# Whether an edited script was put right can only be seen by starting it.
_TRY_EDITED_EVERY = timedelta(minutes=10)


def trouble_of(client: JenkinsClient, name: str) -> str:
    """Why nothing may be triggered there, or "". A job that nobody has looked at yet is looked at now."""
    job = JenkinsJob.objects.filter(name=name).first()
    if job is None or job.checked_at is None:
        check(client, name)
        job = JenkinsJob.objects.filter(name=name).first()
    return _trouble_now(job, clock.now())


def unfit() -> dict[str, str]:
    """Names of all jobs in which nothing may be triggered at this moment, and why."""
    now = clock.now()
    told = {job.name: _trouble_now(job, now) for job in JenkinsJob.objects.exclude(problem="", edited_at=None)}
    return {name: trouble for name, trouble in told.items() if trouble}


def _trouble_now(job: JenkinsJob | None, now: datetime) -> str:
    if job is None:
        return ""
    tried = job.edited_at is not None and timedelta() <= now - job.edited_at < _TRY_EDITED_EVERY
    return job.trouble if job.problem or tried else ""


def check(client: JenkinsClient, name: str) -> str:
    """Ask the controller; one request."""
    try:
        problem = check_job(client, name)
    except Missing as error:
        problem = f"there is no such job, or it is hidden from our user: {error.message}"
    return note(name, problem)


def note(name: str, problem: str) -> str:
    if problem:
        log.warning("jenkins_job_unfit", job=name, problem=problem)
    JenkinsJob.objects.update_or_create(name=name, defaults={"problem": problem, "checked_at": clock.now()})
    return problem


def check_refused(client: JenkinsClient, name: str, error: JenkinsError) -> None:
    """Jenkins has just refused to start it: look why, whenever it was looked at last, so that it is not asked again."""
    problem = check(client, name)
    if not problem and not error.maybe_done:
        note(name, f"Jenkins does not start it: {error.message}")


def note_edited(name: str) -> None:
    """A build of it runs another script than ours."""
    JenkinsJob.objects.update_or_create(name=name, defaults={"edited_at": clock.now()})


def note_ours(name: str) -> None:
    """A build of it runs our script."""
    JenkinsJob.objects.filter(name=name).exclude(edited_at=None).update(edited_at=None)


def check_oldest(client: JenkinsClient, now: datetime) -> None:
    """Look at one job whose last check is too long ago, if there is one. What it costs waits for nobody."""
    fresh = Q(checked_at__gt=now - _CHECK_EVERY, problem="") | Q(checked_at__gt=now - _CHECK_UNFIT_EVERY)
    overdue = JenkinsJob.objects.exclude(fresh, checked_at__lte=now)
    job = overdue.order_by("checked_at").first()
    if job is not None:
        try:
            check(client, job.name)
        except JenkinsError as error:
            log.warning("jenkins_job_unchecked", job=job.name, error=error.message)


def forget(name: str) -> None:
    """The job was just put right: what was noted of it holds no longer, and it is looked at before its next trigger."""
    JenkinsJob.objects.filter(name=name).update(problem="", checked_at=None, edited_at=None)
