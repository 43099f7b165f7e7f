"""Jobs and nodes as they are defined, and a job that is not as it was defined."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.lab.dispatch.jenkins.answers import JobFacts
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.configuration import difference
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.jobs import check_job, filled, job_name, name_problem, wanted
from server.lab.dispatch.jenkins.values import Missing
from server.lab.models import Builder, Machine
from server.lab.port import WorkKind
from tests.builders import build_machine

pytestmark = pytest.mark.django_db


def parsed(xml: str) -> ET.Element:
    """XML 1.1, which Jenkins declares, is not known to the parser."""
    return ET.fromstring(xml.split("?>", 1)[1])  # noqa: S314 (our own)


def job_xml(name: str) -> ET.Element:
    return parsed(wanted().jobs[name].xml)


def build_lab() -> None:
    build_machine("zen3-01", boot_driver="kexec")
    build_machine("vm-1", node="host-7")
    Builder.objects.create(name="b1", arches=["x86_64", "arm64"], capacity=3)


def test_every_host_has_a_node_and_a_job_and_power_cycles_have_one() -> None:
    build_lab()
    Builder.objects.create(name="local-builder")
    build_machine("gone", enabled=False)
    build_machine("old", health=Machine.Health.RETIRED)
    assert sorted(wanted().jobs) == [
        "tidemark-build-b1",
        "tidemark-power-cycle",
        "tidemark-session-vm-1",
        "tidemark-session-zen3-01",
    ]
    assert sorted(wanted().nodes) == ["b1", "host-7", "zen3-01"]
    assert wanted().problems == ()


def test_a_job_runs_on_its_own_node_only_and_takes_one_key() -> None:
    build_lab()
    job = job_xml("tidemark-session-vm-1")
    assert job.findtext("assignedNode") == "host-7"
    assert job.findtext("canRoam") == "false"
    assert job.findtext("concurrentBuild") == "true"
    assert [each.findtext("name") for each in job.iter("hudson.model.StringParameterDefinition")] == ["RUN_ID"]
    assert job.findtext(".//daysToKeep") == "45"
    assert job.findtext(".//numToKeep") == "500"


def test_a_machine_that_boots_itself_is_handed_the_key_and_another_runs_it() -> None:
    build_lab()
    assert " install " in str(job_xml("tidemark-session-zen3-01").findtext(".//command"))
    assert " run " in str(job_xml("tidemark-session-vm-1").findtext(".//command"))


def test_a_builder_has_as_many_executors_as_it_builds_at_once_and_a_machine_one() -> None:
    build_lab()
    nodes = {name: parsed(node.xml) for name, node in wanted().nodes.items()}
    assert {name: node.findtext("numExecutors") for name, node in nodes.items()} == {
        "b1": "3",
        "host-7": "1",
        "zen3-01": "1",
    }
    assert {node.findtext("mode") for node in nodes.values()} == {"EXCLUSIVE"}
    assert nodes["b1"].findtext("label") == "tidemark builder x86_64 arm64"


def test_what_jenkins_takes_for_no_name_is_told_and_the_others_are_defined(settings: Settings) -> None:
    build_lab()
    build_machine("odd", node="a/b c")
    build_machine("twice", node="b1")
    machine, builder = wanted().problems
    assert "odd" in machine
    assert "another host's" in machine + builder
    settings.JENKINS_PREFIX = "bad*"
    assert len(wanted().problems) == 5


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "a?", "a.", "a\n", "x" * 101, "ä", "a&&b"])
def test_names_that_would_be_refused_or_mean_something_else(name: str) -> None:
    assert name_problem(name)


def test_values_cannot_leave_their_place() -> None:
    hostile = "</description><x>&\"'{{node}}"
    xml = filled("job.xml", {"description": hostile, "node": "n", "script": "]]>\n<&"})
    job = parsed(xml)
    assert job.findtext("description") == hostile
    assert job.findtext(".//command") == "]]>\n<&"


@pytest.mark.parametrize("name", ["tidemark-session-zen3-01", "tidemark-session-vm-1"])
@pytest.mark.parametrize(
    "key", ["", "--config=/tmp/x", "-x", "a b", "a;id", "$(id)", "a\nb", "a'b", '"', "../x", "a/b", "ä", "*"]
)
def test_the_script_lets_nothing_but_a_key_through(name: str, key: str, tmp_path: Path, settings: Settings) -> None:
    done = _script_run(name, key, tmp_path, settings)
    assert (done.returncode, done.stdout) == (2, "")


def test_the_script_calls_the_agent_with_the_key_and_what_jenkins_says(tmp_path: Path, settings: Settings) -> None:
    run = _script_run("tidemark-session-vm-1", "session-7-1", tmp_path, settings)
    script = ["--script", wanted().jobs["tidemark-session-vm-1"].script]
    assert run.stdout.splitlines() == ["run", "session-7-1", "--config", "/etc/tidemark/agent.toml", *script]
    install = _script_run("tidemark-session-zen3-01", "session-7-1", tmp_path, settings)
    assert install.stdout.splitlines()[:2] == ["install", "session-7-1"]
    script = ["--script", wanted().jobs["tidemark-session-zen3-01"].script]
    assert install.stdout.splitlines()[2:] == ["--job", "my job", "--number", "4", "--node", "zen3-01", *script]


def _script_run(name: str, key: str, folder: Path, settings: Settings) -> subprocess.CompletedProcess[str]:
    """The job's shell step as a node runs it, with an agent that says what it was called with; sudo is a stand-in."""
    agent = folder / "an agent"
    agent.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    sudo = folder / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    for program in (agent, sudo):
        program.chmod(0o755)
    settings.JENKINS_AGENT = str(agent)
    if not Machine.objects.exists():
        build_lab()
    script = folder / "script.sh"
    script.write_text(str(job_xml(name).findtext(".//command")))
    script.chmod(0o755)
    environment = {"RUN_ID": key, "JOB_NAME": "my job", "BUILD_NUMBER": "4", "NODE_NAME": "zen3-01"}
    environment["PATH"] = f"{folder}:/usr/bin:/bin"
    return subprocess.run([str(script)], env=environment, capture_output=True, text=True, check=False)


def test_the_same_meaning_in_other_words_is_no_difference() -> None:
    build_lab()
    ours = wanted().jobs["tidemark-build-b1"].xml
    rewritten = ours.replace("<project>", '<project plugin="x@1">\n  <actions/>')
    rewritten = rewritten.replace("  <publishers/>\n", "").replace("</command>", "</command><configuredLocalRules/>")
    rewritten = rewritten.replace("<scm ", "<scm  ").replace("<triggers/>", "<triggers></triggers>")
    assert difference(rewritten.encode(), ours, "job") == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<disabled>false", "<disabled>true"),
        ("<concurrentBuild>true", "<concurrentBuild>false"),
        (
            "<publishers/>",
            "<publishers><hudson.tasks.Mailer><recipients>x</recipients></hudson.tasks.Mailer></publishers>",
        ),
        ("<name>RUN_ID", "<name>OTHER"),
        ("exec ", "id; exec "),
        ("<assignedNode>b1", "<assignedNode>b2"),
        ("<project>", "<project"),
        ("<project>", "<!DOCTYPE x><project>"),
    ],
)
def test_another_meaning_is_shown_as_a_diff(before: str, after: str) -> None:
    build_lab()
    ours = wanted().jobs["tidemark-build-b1"].xml
    assert before in ours
    diff = difference(ours.replace(before, after).encode(), ours, "job")
    assert diff.startswith("--- job on the controller")


class Seen(JenkinsClient):
    """A client that sees one job."""

    facts: JobFacts | None = None

    def job_parameters(self, job: str, *, tree: str = "") -> JobFacts:
        if self.facts is None:
            raise Missing(f"{job} {tree}")
        return self.facts


def checked(tmp_path: Path, facts: JobFacts | None, name: str = "tidemark-build-b1") -> str:
    client = Seen(Wire("http://127.0.0.1:1", "dispatcher", tmp_path / "token"))
    client.facts = facts
    return check_job(client, name)


def test_a_job_as_it_was_defined_has_no_problem_and_an_edited_one_says_which(tmp_path: Path) -> None:
    build_lab()
    name = "tidemark-build-b1"
    assert job_name(WorkKind.BUILD, "b1") == name
    good = JobFacts(name, True, wanted().jobs[name].description, (("RUN_ID", "StringParameterDefinition"),))
    assert checked(tmp_path, good) == ""
    assert "disabled" in checked(tmp_path, JobFacts(name, False, good.description, good.parameters))
    assert "parameters" in checked(tmp_path, JobFacts(name, True, good.description, ()))
    two = (*good.parameters, ("X", "StringParameterDefinition"))
    assert "X" in checked(tmp_path, JobFacts(name, True, good.description, two))
    assert "edited" in checked(tmp_path, JobFacts(name, True, "mine", good.parameters))
    assert "not there" in checked(tmp_path, None)
    assert "no job of the lab" in checked(tmp_path, good, "tidemark-build-b2")


def test_a_job_made_for_another_definition_is_found(tmp_path: Path) -> None:
    build_lab()
    name = "tidemark-session-vm-1"
    before = JobFacts(name, True, wanted().jobs[name].description, (("RUN_ID", "StringParameterDefinition"),))
    Machine.objects.filter(name="vm-1").update(boot_driver="grub")
    assert "jenkins_apply" in checked(tmp_path, before, name)
