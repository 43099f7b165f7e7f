"""Nodes and their agents, and how they are shown."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from xml.sax.saxutils import escape

from tests.jenkins.server import config_xml
from tests.jenkins.server.tree import Exported

if TYPE_CHECKING:
    from tests.jenkins.server.builds import Build
    from tests.jenkins.server.controller import Controller

_MONITORS = (
    "SwapSpaceMonitor",
    "TemporarySpaceMonitor",
    "DiskSpaceMonitor",
    "ArchitectureMonitor",
    "ResponseTimeMonitor",
    "ClockMonitor",
)
_MARK = """
  <temporaryOfflineCause class="hudson.slaves.OfflineCause$UserCause">
    <timestamp>{since}</timestamp>
    <description>
      <holder>
        <owner>hudson.slaves.Messages</owner>
      </holder>
      <key>SlaveComputer.DisconnectedBy</key>
      <args>
        <string>{user}</string>
        <string> : {message}</string>
      </args>
    </description>
    <userId>{user}</userId>
    <message>{message}</message>
  </temporaryOfflineCause>"""
_CONFIG = """<?xml version="1.1" encoding="UTF-8"?>
<slave>{mark}
  <name>{name}</name>
  <description>{description}</description>
  <remoteFS>{remote_fs}</remoteFS>
  <numExecutors>{executors}</numExecutors>
  <mode>{mode}</mode>
  <retentionStrategy class="hudson.slaves.RetentionStrategy$Always"/>
  <launcher class="hudson.slaves.JNLPLauncher">
    <workDirSettings>
      <disabled>false</disabled>
      <internalDir>remoting</internalDir>
      <failIfWorkDirIsMissing>false</failIfWorkDirIsMissing>
    </workDirSettings>
    <webSocket>true</webSocket>
  </launcher>
  <label>{label}</label>
  <nodeProperties/>
</slave>"""


@dataclass
class Mark:
    """An operator's (or our) mark: temporarily offline."""

    user: str
    message: str
    since: int


@dataclass
class Node(Exported):
    """One inbound agent's node. The agent is played by this server: `connected` says whether it is there."""

    controller: "Controller"
    name: str
    words: list[str] = field(default_factory=list)
    executors: int = 1
    exclusive: bool = True
    description: str = ""
    remote_fs: str = ""
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    connected: bool = False
    # When its channel broke; None: it never came or is there.
    broken: int | None = None
    mark: Mark | None = None
    frozen_at: float | None = None
    # Monotonic moment at which the agent reconnects by itself.
    back_at: float | None = None
    # What the agents' environment adds for programs: where the service is, tokens of tests.
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        return [*self.words, self.name] if self.name not in self.words else self.words

    @property
    def offline(self) -> bool:
        return not self.connected or self.mark is not None

    def running(self) -> "list[Build]":
        return self.controller.running_on(self)

    def workspace_of(self, job: str) -> Path:
        """Where the agent works, as the node's definition says: a real one writes there, whatever that is."""
        return Path(self.remote_fs) / "workspace" / job

    def has_room(self) -> bool:
        return not self.offline and len(self.running()) < self.executors

    def config(self) -> str:
        mark = self.mark
        return _CONFIG.format(
            mark=_MARK.format(since=mark.since, user=escape(mark.user), message=escape(mark.message)) if mark else "",
            name=escape(self.name),
            description=escape(self.description),
            remote_fs=escape(self.remote_fs),
            executors=self.executors,
            mode="EXCLUSIVE" if self.exclusive else "NORMAL",
            label=escape(" ".join(self.words)),
        )

    def configure(self, xml: str) -> None:
        """Raises config_xml.ConfigError."""
        root = config_xml.read(xml)
        self.words = (root.findtext("label") or "").split()
        self.executors = int(root.findtext("numExecutors") or 1)
        self.exclusive = root.findtext("mode") == "EXCLUSIVE"
        self.description = root.findtext("description") or ""
        self.remote_fs = root.findtext("remoteFS") or ""
        # As Jenkins does since 2.482: the mark is what the configuration says.
        mark = root.find("temporaryOfflineCause")
        words = [mark.findtext(name, "") for name in ("userId", "message", "timestamp")] if mark is not None else []
        self.mark = Mark(words[0], words[1], int(words[2] or 0)) if words else None

    SHORT: ClassVar[Sequence[str]] = ("displayName",)

    def _cause(self) -> Mapping[str, object] | None:
        if self.mark is not None:
            return {
                "_class": "hudson.slaves.OfflineCause$UserCause",
                "timestamp": self.mark.since,
                "description": f"Disconnected by {self.mark.user} : {self.mark.message}",
            }
        if self.broken is not None and not self.connected:
            return {"_class": "hudson.slaves.OfflineCause$ChannelTermination", "timestamp": self.broken}
        return None

    def _reason(self) -> str:
        if self.mark is not None:
            return self.mark.message
        return "Connection was broken" if self.broken is not None and not self.connected else ""

    def exported(self) -> Mapping[str, object]:
        running = self.running()
        executors: list[Mapping[str, object]] = [
            {"currentExecutable": build, "idle": build is None, "progress": _progress(build), "number": index}
            for index, build in enumerate([*running, *[None] * (self.executors - len(running))])
        ]
        return {
            "_class": "hudson.slaves.SlaveComputer",
            "absoluteRemotePath": self.remote_fs if self.connected else None,
            "assignedLabels": [{"name": label} for label in self.labels],
            "description": self.description,
            "displayName": self.name,
            "executors": executors,
            "idle": not running,
            "jnlpAgent": True,
            "launchSupported": False,
            "manualLaunchAllowed": True,
            "monitorData": {f"hudson.node_monitors.{name}": None for name in _MONITORS},
            "numExecutors": self.executors,
            "offline": self.offline,
            "offlineCause": self._cause(),
            "offlineCauseReason": self._reason(),
            "temporarilyOffline": self.mark is not None,
        }


class BuiltIn(Exported):
    """The controller's own node, which has no executor here."""

    SHORT: ClassVar[Sequence[str]] = ("displayName",)

    def exported(self) -> Mapping[str, object]:
        return {
            "_class": "hudson.model.Hudson$MasterComputer",
            "assignedLabels": [{"name": "built-in"}],
            "displayName": "Built-In Node",
            "executors": [],
            "idle": True,
            "monitorData": {f"hudson.node_monitors.{name}": None for name in _MONITORS},
            "numExecutors": 0,
            "offline": False,
            "offlineCause": None,
            "offlineCauseReason": "",
            "temporarilyOffline": False,
        }


def _progress(build: "Build | None") -> int:
    if build is None:
        return -1
    estimate = build.job.estimate()
    return min(99, (build.job.controller.now() - build.started) * 100 // estimate) if estimate > 0 else -1
