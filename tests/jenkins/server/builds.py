"""Builds and how they are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.jenkins.server import parameters
from tests.jenkins.server.console import Console, note
from tests.jenkins.server.tree import Exported
from tests.jenkins.server.words import quoted

if TYPE_CHECKING:
    from tests.jenkins.server.jobs import Job
    from tests.jenkins.server.nodes import Node
    from tests.jenkins.server.process import Program

_LOST = (
    "FATAL: command execution failed",
    "java.nio.channels.ClosedChannelException",
    "Caused: java.io.IOException: Backing channel '{node}' is disconnected.",
    "FATAL: Unable to delete script file",
    "Build step 'Execute shell' marked build as failure",
    f"ERROR: Step {quoted('Archive the artifacts')} failed: no workspace for {{job}} #{{number}}",
)


@dataclass
class Build(Exported):
    """One build; times are Jenkins' clock in milliseconds."""

    job: "Job"
    number: int
    queue_id: int
    parameters: dict[str, str]
    users: list[str]
    node: "Node"
    started: int
    folder: Path
    duration: int = 0
    result: str | None = None
    stopped_by: str | None = None
    console: Console = field(default_factory=Console)
    program: "Program | None" = None
    # Monotonic moments at which what was begun takes effect.
    stop_at: float | None = None
    fails_at: float | None = None

    SHORT: ClassVar[Sequence[str]] = ("number", "url")

    @property
    def building(self) -> bool:
        return self.result is None

    @property
    def url(self) -> str:
        return f"{self.job.url}{self.number}/"

    def begin(self, workspace: Path, script: Path, shell: str) -> None:
        node = self.node
        self.console.line(f"Started by user {note(self.users[0])}")
        self.console.line("Running as SYSTEM")
        labels = " ".join(node.words)
        self.console.line(f"Building remotely on {note(node.name)} ({labels}) in workspace {workspace}")
        self.console.line(f"[{self.job.name}] $ {shell} {script}")

    def end(self, result: str, now: int, *, lost: bool = False) -> None:
        if lost:
            for line in _LOST:
                self.console.line(line.format(node=self.node.name, job=self.job.name, number=self.number))
        elif result == "ABORTED":
            self.console.line("Build was aborted")
            self.console.line(f"Aborted by {self.stopped_by}")
        elif result == "FAILURE":
            self.console.line("Build step 'Execute shell' marked build as failure")
        if not lost and self.job.artifacts:
            self.console.line("Archiving artifacts")
        self.console.line(f"Finished: {result}")
        self.result, self.duration = result, max(1, now - self.started)

    def artifacts(self) -> list[Path]:
        """Archived files, relative to `folder`."""
        return sorted(path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())

    def _executor(self) -> Mapping[str, object] | None:
        if not self.building:
            return None
        estimate = self.job.estimate()
        passed = self.job.controller.now() - self.started
        progress = min(99, passed * 100 // estimate) if estimate > 0 else -1
        return {"likelyStuck": False, "number": 0, "progress": progress, "currentExecutable": self}

    def _actions(self) -> list[dict[str, object]]:
        actions = [parameters.values_action(self.parameters)] if self.parameters else []
        actions.append(parameters.causes_action(self.users))
        if self.stopped_by is not None:
            cause = {
                "_class": "jenkins.model.CauseOfInterruption$UserInterruption",
                "shortDescription": f"Aborted by {self.stopped_by}",
            }
            actions.append({"_class": "jenkins.model.InterruptedBuildAction", "causes": [cause]})
        return actions

    def exported(self) -> Mapping[str, object]:
        return {
            "_class": "hudson.model.FreeStyleBuild",
            "actions": self._actions,
            "artifacts": lambda: [
                {"displayPath": path.name, "fileName": path.name, "relativePath": str(path)}
                for path in self.artifacts()
            ],
            "building": self.building,
            "description": None,
            "displayName": f"#{self.number}",
            "duration": self.duration,
            "estimatedDuration": self.job.estimate,
            "executor": self._executor,
            "fullDisplayName": f"{self.job.name} #{self.number}",
            "id": str(self.number),
            "inProgress": self.building,
            "keepLog": False,
            "number": self.number,
            "queueId": self.queue_id,
            "result": self.result,
            "timestamp": self.started,
            "url": self.url,
            "builtOn": self.node.name,
            "changeSet": {"_class": "hudson.scm.EmptyChangeLogSet", "items": [], "kind": None},
            "culprits": [],
        }
