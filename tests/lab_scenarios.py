"""A lab in the middle of its work, with something wrong in every place where something can be."""

from datetime import timedelta
from typing import Any

from server.builds.models import Artifact, Build, ConfigFragment
from server.core import clock
from server.core.models import Transition
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob, JenkinsNode, JenkinsRun
from server.lab.models import Attempt, Builder, Machine, Session
from tests.builders import (
    build_attempt,
    build_build,
    build_builder,
    build_config,
    build_health_session,
    build_machine,
    build_power_cycle,
    build_revision,
    build_series,
    build_session,
)

CONTROLLER = "http://jenkins.example.org"


def busy_lab() -> Machine:
    """Two machines and two builders of a Jenkins lab: runs, holds, alarms and a queue; returns the busy machine."""
    now = clock.now()
    JenkinsController.objects.create(
        url=CONTROLLER,
        version="2.555.3",
        answered_at=now - timedelta(seconds=4),
        unreachable_since=now - timedelta(minutes=3),
        trouble="no answer within 10 s",
        alarm="The token of user dispatcher is refused (401): renew it",
        alarm_since=now - timedelta(minutes=9),
        clock_skew_seconds=-312.4,
        round_at=now - timedelta(seconds=7),
        round_seconds=0.214,
        round_requests=5,
    )
    JenkinsJob.objects.create(name="tidemark-session-bench-2", problem="the parameter RUN_ID is gone", checked_at=now)
    machine = busy_machine()
    sick_machine()
    building()
    waiting = build_session(build_series(subject="mm: Wait for the busy machine"), machine)
    Session.objects.filter(pk=waiting.pk).update(deadline_at=now + timedelta(hours=3), needs=["cxl"], priority=5)
    return machine


def busy_machine() -> Machine:
    """A machine that boots itself, in a session, with its node held."""
    now = clock.now()
    machine = build_machine(
        "bench-1",
        "zen5",
        boot_driver="kexec",
        state=Machine.State.WORKING,
        state_reason="session under way",
        capabilities=["cxl", "1g-pages"],
        last_seen_at=now,
    )
    session = build_session(build_series(subject="mm: Measure on iron"), machine, state=Session.State.RUNNING)
    attempt = build_attempt(
        session,
        adapter="jenkins",
        posts=1,
        agent="5" * 64,
        host="bench-1.lab.example.org",
        arrived_at=now - timedelta(minutes=12),
        lease_until=now + timedelta(minutes=4),
        deadline_at=now + timedelta(hours=6),
        progress="boot 3 of 8: mm-basic/fault-4k",
        log="attempt-claimed\nbooting\n",
    )
    run = JenkinsRun.objects.create(
        attempt=attempt,
        job="tidemark-session-bench-1",
        node="bench-1",
        number=41,
        result="SUCCESS",
        seen_at=now,
    )
    JenkinsNode.objects.create(
        name=run.node,
        connected=True,
        temporarily_offline=True,
        offline_reason=f"Tidemark (tidemark-): {attempt.key}",
        held_for=attempt.key,
        seen_at=now,
    )
    return machine


def sick_machine() -> Machine:
    """A machine that did not come back, was switched off and on in vain, and is to be checked."""
    now = clock.now()
    machine = build_machine(
        "bench-2",
        "zen3",
        boot_driver="grub",
        state=Machine.State.OFFLINE,
        state_reason="not connected",
        health=Machine.Health.QUARANTINED,
        health_reason="did not come back after it was switched off and on",
        health_since=now - timedelta(hours=2),
    )
    build_power_cycle(machine, state="done", reason="switched off and on")
    build_attempt(build_power_cycle(machine), state=Attempt.State.QUEUED, adapter="jenkins")
    build_health_session(machine, reason="seen again after its quarantine")
    for before, after, reason, actor in (
        ("unknown", "good", "its first health session passed", ""),
        ("good", "maintenance", "new memory", "ada"),
        ("maintenance", "unknown", "memory is in", "ada"),
        ("unknown", "good", "its health session passed", ""),
        ("good", "quarantined", "did not come back after it was switched off and on", ""),
    ):
        Transition.objects.create(
            trace="0" * 16,
            subject="machine-health",
            subject_id=machine.pk,
            before=before,
            after=after,
            reason=reason,
            actor=actor,
        )
    JenkinsNode.objects.create(
        name="bench-2", offline_reason="Connection was broken", temporarily_offline=True, seen_at=now
    )
    return machine


def building() -> Builder:
    """A builder with a kernel under way, one that waits in Jenkins' queue and is stuck, and some it made."""
    now = clock.now()
    builder = build_builder("builder-1", capacity=2, arches=["x86_64", "arm64"], state=Builder.State.WORKING)
    build_builder("builder-2", health=Builder.Health.QUARANTINED, health_reason="3 builds lost in a row")
    JenkinsNode.objects.create(name="builder-1", online=True, connected=True, busy_with="build #7", seen_at=now)
    made = made_build()
    build_attempt(made, state=Attempt.State.DONE, builder=builder, adapter="jenkins")
    running = build_build(build_revision(subject="Linux 7.3-rc2"), state=Build.State.RUNNING)
    build_attempt(running, builder=builder, adapter="jenkins", progress="compiling", lease_until=now)
    queued = build_build(build_revision(subject="Linux 7.3-rc3"), state=Build.State.DISPATCHED)
    attempt = build_attempt(queued, state=Attempt.State.QUEUED, builder=builder, adapter="jenkins", posts=2)
    JenkinsRun.objects.create(
        attempt=attempt,
        job="tidemark-build-builder-1",
        node="builder-1",
        queue_id=812,
        why="Waiting for next available executor on 'builder-1'",
        stuck=True,
        seen_at=now,
        cancel_asked_at=now,
    )
    build_build(build_revision(subject="Linux 7.3-rc4"), state=Build.State.WANTED)
    return builder


def made_build() -> Build:
    """A built kernel with files of every kind, one of them removed, and a twin that runs the same code."""
    ConfigFragment.objects.get_or_create(name="lab", defaults={"lines": "CONFIG_IKCONFIG=y\nCONFIG_KEXEC_FILE=y\n"})
    config = build_config("lab-x86-64", base="defconfig", fragments=["lab", "gone"], fragment="CONFIG_EXPERT=y\n")
    shared: dict[str, Any] = {
        "config": config,
        "recipe": "9" * 64,
        "text_hash": "7" * 64,
        "compiler_version": "gcc (Debian) 12.2.0",
    }
    made = build_build(build_revision(subject="Linux 7.3-rc1"), seconds=612.0, log_tail="LD vmlinux\n", **shared)
    build_build(build_revision(subject="mm: Fix a comment"), **shared)
    for number, kind in enumerate(["config", "log", "modules", "perf"], start=1):
        Artifact.objects.create(build=made, kind=kind, sha256=f"{made.pk:032x}{number:032x}", size=number * 70_000)
    Artifact.objects.create(
        build=made,
        kind="system-map",
        sha256="b" * 64,
        size=4_000_000,
        removed_at=clock.now(),
        removal="not used for 30 days",
    )
    return made
