"""Which jobs and nodes the lab needs on its controller, and whether a job still is as we defined it."""

import hashlib
import re
import shlex
from dataclasses import dataclass

from django.conf import settings

from server.lab.dispatch.base import Kind
from server.lab.dispatch.jenkins.answers import RUN_ID
from server.lab.dispatch.jenkins.client import JenkinsClient, Missing
from server.lab.dispatch.jenkins.definitions_xml import filled, filled_script
from server.lab.models import Builder, Host, Machine
from server.lab.scheduling.builders import LOCAL_BUILDER
from server.lab.works import boots_itself

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


def job_name(kind: Kind, subject: str = "") -> str:
    """Name of the job for work of a kind: of a machine's sessions, of a builder's builds, or of power cycles."""
    if kind is Kind.POWER_CYCLE:
        return f"{settings.JENKINS_PREFIX}{Kind.POWER_CYCLE}"
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
        return _job(job_name(Kind.SESSION, host.name), host.node_name, f"sessions of machine {host.name}", script)
    return _job(job_name(Kind.BUILD, host.name), host.node_name, f"kernel builds on {host.name}", "run.sh")


def _power_cycle() -> JobDefinition:
    return _job(job_name(Kind.POWER_CYCLE), settings.LAB_CONTROL, "switches machines off and on", "run.sh")


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
