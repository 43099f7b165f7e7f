"""Cells of the matrix: work brought to one state of its way, and how it has to end."""

import enum
from collections import Counter
from dataclasses import dataclass

from server.builds.models import Artifact, Build
from server.lab.attempts.ends import cancel_attempt
from server.lab.models import Attempt, AttemptState, Boot, Session
from server.results.models import Measurement
from tests.builders import (
    because,
    build_build,
    build_case,
    build_config,
    build_machine,
    build_metric,
    build_session,
    build_toolchain,
)
from tests.jenkins.matrix.lab import Lab


class At(enum.StrEnum):
    """Where work is when the fault comes."""

    WANTED = "wanted"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    ARRIVED = "handed over"
    RUNNING = "running"
    CANCELING = "canceling"
    LOSING = "canceling, for trouble"
    UPLOADED = "results sent, no end"


# Where agents stand still for it.
_HELD_AT = {
    At.ARRIVED: "arrived",
    At.RUNNING: "running",
    At.CANCELING: "running",
    At.LOSING: "running",
    At.UPLOADED: "uploaded",
}
SESSION_STATES = tuple(At)
BUILD_STATES = (At.WANTED, At.QUEUED, At.RUNNING, At.LOSING, At.UPLOADED)
# Those in which a build's way differs from a session's: what runs does so inside of the controller's own build.
FEW_BUILD_STATES = (At.RUNNING, At.LOSING)
_FINAL = {"done", "built", "failed", "canceled"}


@dataclass
class Cell:
    """One piece of work on a host of its own."""

    lab: Lab
    at: At
    host: str
    item: Session | Build

    @property
    def row(self) -> str:
        return f"{'session' if isinstance(self.item, Session) else 'build'} {self.at}"

    def attempt(self) -> Attempt | None:
        return self.item.attempts.order_by("-id").first()

    def is_there(self) -> bool:
        """Whether it has come to its state."""
        attempt = self.attempt()
        if attempt is None:
            return False
        if self.at is At.QUEUED:
            return attempt.state == AttemptState.QUEUED
        if self.at is At.ARRIVED:
            return (self.lab.folder / "keys" / self.host).exists()
        if self.at is At.UPLOADED:
            return attempt.state == AttemptState.RUNNING and self._has_results()
        return attempt.state == AttemptState.RUNNING

    def is_in_flight(self) -> bool:
        """For `submitting`: the request has left, and nobody knows what became of it."""
        attempt = self.attempt()
        return attempt is not None and attempt.posts == 1

    def _has_results(self) -> bool:
        if isinstance(self.item, Build):
            return any(self.lab.folder.glob(f"build-{self.item.pk}-*.image"))
        return not self.item.boots.exclude(state="measured").exists()

    def cancel(self) -> None:
        attempt = self.attempt()
        if attempt is not None and self.at in {At.CANCELING, At.LOSING}:
            cancel_attempt(attempt, because("asked for by the matrix"), losing=self.at is At.LOSING)

    def release(self) -> None:
        self.lab.release(self.host)
        with self.lab.jenkins.controller.lock:
            node = self.lab.jenkins.controller.nodes.get(self.host)
            if node is not None:
                node.executors = 1

    def is_over(self) -> bool:
        self.item.refresh_from_db()
        return self.item.state in _FINAL and not self.item.attempts.filter(state__in=Attempt.ACTIVE).exists()

    # --- the judgement --------------------------------------------------------------------------

    def result_sets(self) -> str:
        """How many whole sets of results there are: "1", or what is wrong with them."""
        if isinstance(self.item, Build):
            kinds = Counter(Artifact.objects.filter(build=self.item).values_list("kind", flat=True))
            return str(kinds["image"])
        counts = {
            boot.position: Measurement.objects.filter(boot=boot).count()
            for boot in Boot.objects.filter(session=self.item)
        }
        stored = Counter(
            position
            for machine in self.lab.machines.values()
            for key, position in machine.stored
            if key == f"session-{self.item.pk}"
        )
        if set(counts.values()) == {1} and set(stored.values()) <= {1}:
            return "1"
        return "0" if not sum(counts.values()) else f"{dict(counts)}, stored {dict(stored)}"

    def ends_as(self) -> str:
        """The state in which it ends, and its sets of results."""
        return f"{self.item.state} {self.result_sets()}"

    def should_end_as(self) -> str:
        if self.at is At.CANCELING:
            return "canceled 0"
        return "built 1" if isinstance(self.item, Build) else "done 1"

    def story(self) -> str:
        attempts = [f"{each.key} {each.state} ({each.reason})" for each in self.item.attempts.order_by("id")]
        return f"{self.row}: {self.item.state} ({self.item.reason}); " + "; ".join(attempts)


def make_session(lab: Lab, at: At, host: str) -> Cell:
    build_metric()
    build_case()
    machine = build_machine(host)
    _prepare(lab, at, host)
    return Cell(lab, at, host, build_session(machine=machine, boots_per_side=2))


def make_build(lab: Lab, at: At, host: str) -> Cell:
    _prepare(lab, at, host)
    toolchain = build_toolchain(f"gcc-{host}")
    return Cell(lab, at, host, build_build(state=Build.State.WANTED, toolchain=toolchain, config=build_config()))


def _prepare(lab: Lab, at: At, host: str) -> None:
    if at in _HELD_AT:
        lab.hold(host, _HELD_AT[at])
    if at is At.QUEUED:
        lab.jenkins.node(host).executors = 0
