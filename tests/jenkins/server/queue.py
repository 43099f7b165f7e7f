"""The queue: items that wait, and for a while those that left."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tests.jenkins.server import parameters
from tests.jenkins.server.labels import matches
from tests.jenkins.server.tree import EVERYTHING, Exported
from tests.jenkins.server.words import quoted

if TYPE_CHECKING:
    from tests.jenkins.server.builds import Build
    from tests.jenkins.server.controller import Controller
    from tests.jenkins.server.jobs import Job
    from tests.jenkins.server.nodes import Node


@dataclass
class Item(Exported):
    """One item; `ready_at` and `left_at` are monotonic, the others Jenkins' clock in milliseconds."""

    controller: "Controller"
    id: int
    job: "Job"
    parameters: dict[str, str]
    users: list[str]
    since: int
    ready_at: float
    expires: int
    buildable_since: int | None = None
    cancelled: bool = False
    build: "Build | None" = None
    left_at: float | None = None

    SHORT: ClassVar[Sequence[str]] = EVERYTHING

    def _state(self) -> tuple[str, str | None, bool]:
        """Class, why, stuck."""
        if self.left_at is not None:
            return "LeftItem", None, False
        left = self.ready_at - time.monotonic()
        if left > 0:
            return "WaitingItem", f"In the quiet period. Expires in {left:.1f} sec", False
        if self.buildable_since is None:
            return "WaitingItem", "Finished waiting", False
        running = self.job.running()
        if running is not None and not self.job.concurrent:
            estimate = self.job.estimate()
            eta = "N/A" if estimate < 0 else f"{max(0, running.started + estimate - self.controller.now()) / 1000} sec"
            return "BlockedItem", f"Build #{running.number} is already in progress (ETA: {eta})", False
        if self.controller.quieting:
            return "BuildableItem", "Jenkins is about to shut down", False
        return "BuildableItem", *self._no_node()

    def _no_node(self) -> tuple[str, bool]:
        label, nodes = self.job.label, [node for _, node in sorted(self.controller.nodes.items())]
        if not label:
            reserved = [f"{quoted(node.name)} is reserved for jobs with matching label expression" for node in nodes]
            return "; ".join(reserved) or "Waiting for next available executor", False
        fitting = [node for node in nodes if matches(label, node.labels)]
        if not fitting:
            return f"There are no nodes with the label {quoted(label)}", True
        offline = [node for node in fitting if node.offline]
        if len(offline) == len(fitting):
            one = len(fitting) == 1
            return (
                f"{quoted(fitting[0].name)} is offline" if one else f"All nodes of label {quoted(label)} are offline"
            ), True
        name = fitting[0].name if len(fitting) == 1 else label
        return f"Waiting for next available executor on {quoted(name)}", False

    def exported(self) -> Mapping[str, object]:
        kind, why, stuck = self._state()
        shown: dict[str, object] = {
            "_class": f"hudson.model.Queue${kind}",
            "actions": [
                *([parameters.values_action(self.parameters)] if self.parameters else []),
                parameters.causes_action(self.users),
            ],
            "blocked": kind == "BlockedItem",
            "buildable": kind == "BuildableItem",
            "id": self.id,
            "inQueueSince": self.since,
            "params": "".join(f"\n{name}={value}" for name, value in self.parameters.items()),
            "stuck": stuck,
            "task": self.job,
            "url": f"queue/item/{self.id}/",
            "why": why,
        }
        if kind == "WaitingItem":
            shown["timestamp"] = self.expires
        elif kind == "LeftItem":
            shown |= {"cancelled": self.cancelled, "executable": self.build}
        else:
            shown["buildableStartMilliseconds"] = self.buildable_since
        if kind == "BuildableItem":
            shown["pending"] = False
        return shown


@dataclass
class Queue(Exported):
    """Items in the order of their ids. The caller holds the controller's lock."""

    controller: "Controller"
    waiting: dict[int, Item] = field(default_factory=dict)
    left: dict[int, Item] = field(default_factory=dict)
    next_id: int = 1

    def of_job(self, job: "Job") -> list[Item]:
        return [item for item in self.waiting.values() if item.job is job]

    def add(self, job: "Job", values: dict[str, str], user: str, delay: float) -> tuple[Item, bool]:
        """The item and whether it was there already: the same parameters are folded while one still waits."""
        for item in self.of_job(job):
            if item.parameters == values:
                item.users.append(user)
                return item, True
        now, moment = self.controller.now(), time.monotonic()
        item = Item(
            self.controller, self.next_id, job, values, [user], now, moment + delay, expires=now + int(delay * 1000)
        )
        self.next_id += 1
        self.waiting[item.id] = item
        return item, False

    def find(self, item_id: int) -> Item | None:
        return self.waiting.get(item_id) or self.left.get(item_id)

    def leave(self, item: Item, build: "Build | None") -> None:
        """Out of the queue: into a build, or cancelled."""
        del self.waiting[item.id]
        item.build, item.cancelled, item.left_at = build, build is None, time.monotonic()
        self.left[item.id] = item

    def due(self) -> list[Item]:
        """Items whose quiet period is over, in the order in which they may start."""
        moment = time.monotonic()
        items = [item for _, item in sorted(self.waiting.items()) if item.ready_at <= moment]
        for item in items:
            item.buildable_since = item.buildable_since or self.controller.now()
        return items

    def forget(self) -> None:
        oldest = time.monotonic() - self.controller.timing.left_item
        for item in [item for item in self.left.values() if (item.left_at or 0) < oldest]:
            del self.left[item.id]

    def exported(self) -> Mapping[str, object]:
        items = list(self.waiting.values())
        quiet = [item for item in items if item.buildable_since is None]
        # As recorded: what is buildable is listed with the newest first.
        others = [item for item in reversed(items) if item.buildable_since is not None]
        return {"_class": "hudson.model.Queue", "discoverableItems": [], "items": [*quiet, *others]}


def place_for(item: Item) -> "Node | None":
    """The node on which the item can start now."""
    job = item.job
    if job.running() is not None and not job.concurrent:
        return None
    for node in item.controller.nodes.values():
        if node.has_room() and (matches(job.label, node.labels) if job.label else not node.exclusive):
            return node
    return None
