"""Jobs: what their config.xml says, and how they are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tests.jenkins.server import config_xml, parameters
from tests.jenkins.server.parameters import Definition
from tests.jenkins.server.tree import Exported

if TYPE_CHECKING:
    from tests.jenkins.server.builds import Build
    from tests.jenkins.server.controller import Controller

_COLORS = {"SUCCESS": "blue", "FAILURE": "red", "ABORTED": "aborted"}
# What `builds` shows at most; `allBuilds` has no limit.
_SHOWN_BUILDS = 100
_BUILDERS = "builders/hudson.tasks.Shell/command"
_ARTIFACTS = "publishers/hudson.tasks.ArtifactArchiver/artifacts"


@dataclass
class Job(Exported):
    """A freestyle job; `builds` has the newest first."""

    controller: "Controller"
    name: str
    xml: str
    description: str = ""
    definitions: list[Definition] = field(default_factory=list)
    label: str = ""
    concurrent: bool = False
    disabled: bool = False
    scripts: list[str] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)
    builds: "list[Build]" = field(default_factory=list)
    next_number: int = 1

    SHORT: ClassVar[Sequence[str]] = ("name", "url", "color")

    @property
    def url(self) -> str:
        return f"{self.controller.url}/job/{self.name}/"

    def configure(self, xml: str) -> None:
        """Take over a config.xml. Raises config_xml.ConfigError."""
        root = config_xml.read(xml)
        self.xml = xml
        self.description = root.findtext("description") or ""
        self.definitions = parameters.read(root)
        self.label = root.findtext("assignedNode") or ""
        self.concurrent = root.findtext("concurrentBuild") == "true"
        self.disabled = root.findtext("disabled") == "true"
        self.scripts = [element.text or "" for element in root.iterfind(_BUILDERS)]
        self.artifacts = [
            pattern.strip()
            for element in root.iterfind(_ARTIFACTS)
            for pattern in (element.text or "").split(",")
            if pattern.strip()
        ]

    def find(self, number: int) -> "Build | None":
        return next((build for build in self.builds if build.number == number), None)

    def running(self) -> "Build | None":
        """The oldest build that runs."""
        return next((build for build in reversed(self.builds) if build.building), None)

    def estimate(self) -> int:
        """Milliseconds that a build takes: the mean of the last three that were good; -1 without one."""
        good = [build.duration for build in self.builds if build.result == "SUCCESS"][:3]
        return sum(good) // len(good) if good else -1

    def _color(self) -> str:
        if not self.builds:
            return "notbuilt"
        ended = next((build for build in self.builds if not build.building), None)
        color = _COLORS.get(ended.result or "", "notbuilt") if ended else "notbuilt"
        return f"{color}_anime" if self.running() else color

    def exported(self) -> Mapping[str, object]:
        waiting = self.controller.queue.of_job(self)
        return {
            "_class": "hudson.model.FreeStyleProject",
            "actions": [parameters.definitions_action(self.definitions, named=False), {}],
            "description": self.description,
            "displayName": self.name,
            "displayNameOrNull": None,
            "fullDisplayName": self.name,
            "fullName": self.name,
            "name": self.name,
            "url": self.url,
            "buildable": not self.disabled,
            "allBuilds": lambda: self.builds,
            "builds": lambda: self.builds[:_SHOWN_BUILDS],
            "color": self._color,
            **self._permalinks(),
            "healthReport": [],
            "inQueue": bool(waiting),
            "keepDependencies": False,
            "nextBuildNumber": self.next_number,
            "property": [parameters.definitions_action(self.definitions, named=True)] if self.definitions else [],
            "queueItem": waiting[0] if waiting else None,
            "concurrentBuild": self.concurrent,
            "disabled": self.disabled,
            "downstreamProjects": [],
            "labelExpression": self.label or None,
            "scm": {"_class": "hudson.scm.NullSCM"},
            "upstreamProjects": [],
        }

    def _permalinks(self) -> Mapping[str, object]:
        def last(*results: str) -> "Build | None":
            return next((build for build in self.builds if build.result in results), None)

        return {
            "firstBuild": self.builds[-1] if self.builds else None,
            "lastBuild": self.builds[0] if self.builds else None,
            "lastCompletedBuild": last("SUCCESS", "FAILURE", "ABORTED"),
            "lastFailedBuild": last("FAILURE"),
            "lastStableBuild": last("SUCCESS"),
            "lastSuccessfulBuild": last("SUCCESS"),
            "lastUnstableBuild": None,
            "lastUnsuccessfulBuild": last("FAILURE", "ABORTED"),
        }


def make(controller: "Controller", name: str, xml: str) -> Job:
    """Raises config_xml.ConfigError."""
    job = Job(controller, name, xml)
    job.configure(xml)
    return job
