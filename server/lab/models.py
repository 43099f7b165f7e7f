"""The lab: machines, the sessions that reserve them, the boots inside, and attempts to get work done there."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, Value

from server.builds.models import Build, KernelConfig, Toolchain
from server.core.states import Stateful, state_check
from server.sources.models import Series
from server.sources.models.trees import words


class Microarchitecture(models.Model):
    """A kind of CPU: the unit that verdicts speak about."""

    name = models.SlugField(
        max_length=60,
        unique=True,
        help_text="As kernel people write it: zen3, haswell ...",
    )
    arch = models.CharField(max_length=20)
    title = models.CharField(max_length=100)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "microarchitectures"

    def __str__(self) -> str:
        return self.name


class Machine(models.Model):
    """One host that boots kernels; a virtual one says so from probe to page."""

    class Clock(models.TextChoices):
        WALL = "wall", "wall-clock time"
        INSTRUCTIONS = (
            "instructions",
            "counted instructions (1 ns each), blind to caches",
        )

    class Health(models.TextChoices):
        GOOD = "good", "good"
        QUARANTINED = "quarantined", "quarantined"

    name = models.SlugField(max_length=60, unique=True)
    uarch = models.ForeignKey(Microarchitecture, on_delete=models.PROTECT, related_name="machines")
    enabled = models.BooleanField(default=True)
    health = models.CharField(max_length=12, choices=Health.choices, default=Health.GOOD)
    health_reason = models.TextField(blank=True)
    virtual = models.BooleanField(default=False)
    clock = models.CharField(max_length=12, choices=Clock.choices, default=Clock.WALL)
    boot_driver = models.CharField(max_length=10, default="qemu")
    driver_options = models.JSONField(default=dict, blank=True)
    config = models.ForeignKey(KernelConfig, on_delete=models.PROTECT, related_name="machines")
    toolchain = models.ForeignKey(Toolchain, on_delete=models.PROTECT, related_name="machines")
    boots_per_side = models.PositiveIntegerField(default=4)
    cases = ArrayField(
        models.CharField(max_length=121),
        default=list,
        blank=True,
        help_text="What it measures, as BENCHMARK/CASE or patterns (mm-basic/*); empty: everything.",
    )
    facts = models.JSONField(default=dict, blank=True, help_text="What the last boot's probe saw.")
    last_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(health__in=["good", "quarantined"]),
                name="machine_health_known",
            ),
            models.CheckConstraint(
                condition=Q(clock__in=["wall", "instructions"]),
                name="machine_clock_known",
            ),
            models.CheckConstraint(condition=Q(boots_per_side__gte=2), name="machine_boots_enough"),
        ]
        ordering = ["uarch__name", "name"]

    def __str__(self) -> str:
        return self.name


class CoreType(models.Model):
    """One kind of core in a machine; most machines have one."""

    machine = models.ForeignKey(Machine, on_delete=models.CASCADE, related_name="core_types")
    name = models.CharField(max_length=60)
    cpus = models.TextField(help_text="CPU list as the kernel writes it: 0-3,8")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["machine", "name"], name="core_type_once")]
        ordering = ["machine", "name"]

    def __str__(self) -> str:
        return f"{self.machine.name}/{self.name}"


class SessionState(models.TextChoices):
    PLANNED = "planned", "waiting for its machine"
    DISPATCHED = "dispatched", "given to the machine"
    RUNNING = "running", "booting and measuring"
    DONE = "done", "all boots measured"
    FAILED = "failed", "cannot be measured"
    CANCELED = "canceled", "no longer wanted"


class Session(Stateful):
    """One reservation of one machine that boots base and patched kernels in an interleaved order."""

    State = SessionState

    # A result that waited in an agent's spool can end a session that was planned again meanwhile.
    NEXT: ClassVar = {
        SessionState.PLANNED: frozenset(
            {SessionState.DISPATCHED, SessionState.DONE, SessionState.FAILED, SessionState.CANCELED}
        ),
        SessionState.DISPATCHED: frozenset(
            {
                SessionState.RUNNING,
                SessionState.PLANNED,
                SessionState.DONE,
                SessionState.FAILED,
                SessionState.CANCELED,
            }
        ),
        SessionState.RUNNING: frozenset(
            {SessionState.DONE, SessionState.FAILED, SessionState.PLANNED, SessionState.CANCELED}
        ),
    }
    FINAL: ClassVar = frozenset({SessionState.DONE, SessionState.FAILED, SessionState.CANCELED})

    series = models.ForeignKey(Series, on_delete=models.PROTECT, related_name="sessions")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="sessions")
    base_build = models.ForeignKey(Build, on_delete=models.PROTECT, related_name="sessions_as_base")
    patched_build = models.ForeignKey(Build, on_delete=models.PROTECT, related_name="sessions_as_patched")
    benchmarks = words(
        100,
        "What is measured of all that the machine can, as BENCHMARK or BENCHMARK/CASE's beginning; empty, or none of "
        "it there: everything.",
    )

    class Meta:
        constraints = [
            state_check(SessionState, "session_state_known"),
            models.UniqueConstraint(fields=["series", "machine"], name="session_once"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"session {self.pk} on {self.machine.name}"


class BootState(models.TextChoices):
    PLANNED = "planned", "not booted yet"
    RUNNING = "running", "booting or measuring"
    MEASURED = "measured", "measured"
    FAILED = "failed", "gave no measurement"


class Boot(Stateful):
    """One boot of one kernel in a session: the unit of statistics."""

    State = BootState

    class Arm(models.TextChoices):
        BASE = "base", "base kernel"
        PATCHED = "patched", "patched kernel"

    NEXT: ClassVar = {
        BootState.PLANNED: frozenset({BootState.RUNNING, BootState.MEASURED, BootState.FAILED}),
        BootState.RUNNING: frozenset({BootState.MEASURED, BootState.FAILED, BootState.PLANNED}),
    }

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="boots")
    position = models.PositiveIntegerField(help_text="Order in the session, from 0")
    arm = models.CharField(max_length=8, choices=Arm.choices)
    outcome = models.CharField(max_length=20, blank=True, help_text="measured, panic, no-boot ... (agent-protocol.md)")
    started_by = models.CharField(max_length=60, blank=True, help_text="Key of the attempt that boots it")
    retries = models.PositiveIntegerField(default=0, help_text="Times it was planned again for infrastructure reasons")
    boot_id = models.CharField(max_length=36, blank=True, help_text="The running kernel's own random boot_id")
    build_id = models.CharField(max_length=64, blank=True, help_text="GNU build id the running kernel showed")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    notes = models.JSONField(
        default=list,
        blank=True,
        help_text="Cases that gave no measurement, with the reason.",
    )
    conditions = models.JSONField(
        default=dict,
        db_default=Value({}, models.JSONField()),
        blank=True,
        help_text="Settings, samples and counters around the cases (agent-protocol.md).",
    )
    console_tail = models.TextField(blank=True)

    class Meta:
        constraints = [
            state_check(BootState, "boot_state_known"),
            models.CheckConstraint(condition=Q(arm__in=["base", "patched"]), name="boot_arm_known"),
            models.UniqueConstraint(fields=["session", "position"], name="boot_position_once"),
            models.UniqueConstraint(fields=["boot_id"], condition=~Q(boot_id=""), name="boot_id_once"),
            models.CheckConstraint(
                condition=~Q(state="measured") | (~Q(boot_id="") & ~Q(build_id="")),
                name="measured_boot_is_proved",
            ),
        ]
        ordering = ["session", "position"]

    def __str__(self) -> str:
        return f"boot {self.position} ({self.arm}) of session {self.session_id}"


class AttemptState(models.TextChoices):
    SUBMITTING = "submitting", "being handed to the dispatcher"
    QUEUED = "queued", "accepted, not claimed yet"
    RUNNING = "running", "claimed by an agent"
    DONE = "done", "the agent reported its end"
    LOST = "lost", "ended without a report"
    CANCELED = "canceled", "canceled"


class Attempt(Stateful):
    """One try to get a build or a session done somewhere. Its key makes submitting it twice harmless."""

    State = AttemptState

    NEXT: ClassVar = {
        AttemptState.SUBMITTING: frozenset(
            {
                AttemptState.QUEUED,
                AttemptState.RUNNING,
                AttemptState.LOST,
                AttemptState.CANCELED,
            }
        ),
        AttemptState.QUEUED: frozenset({AttemptState.RUNNING, AttemptState.LOST, AttemptState.CANCELED}),
        AttemptState.RUNNING: frozenset({AttemptState.DONE, AttemptState.LOST, AttemptState.CANCELED}),
    }
    ACTIVE: ClassVar = (
        AttemptState.SUBMITTING,
        AttemptState.QUEUED,
        AttemptState.RUNNING,
    )

    key = models.CharField(max_length=60, unique=True, help_text="build-ID-NUMBER or session-ID-NUMBER")
    number = models.PositiveIntegerField()
    build = models.ForeignKey(Build, null=True, blank=True, on_delete=models.CASCADE, related_name="attempts")
    session = models.ForeignKey(
        Session,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="attempts",
    )
    adapter = models.CharField(max_length=20)
    slots = models.PositiveIntegerField(help_text="How much of the dispatcher's capacity it takes.")
    agent = models.CharField(
        max_length=64,
        blank=True,
        help_text="Random id of the agent process that claimed it.",
    )
    lease_until = models.DateTimeField(null=True, blank=True)
    progress = models.CharField(max_length=200, blank=True)
    log = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="The end of what the agent logged, as its heartbeats brought it.",
    )

    class Meta:
        constraints = [
            state_check(AttemptState, "attempt_state_known"),
            models.CheckConstraint(
                condition=Q(build__isnull=False, session__isnull=True) | Q(build__isnull=True, session__isnull=False),
                name="attempt_of_one_thing",
            ),
            models.UniqueConstraint(
                fields=["build"],
                condition=Q(state__in=["submitting", "queued", "running"]),
                name="build_one_active_attempt",
            ),
            models.UniqueConstraint(
                fields=["session"],
                condition=Q(state__in=["submitting", "queued", "running"]),
                name="session_one_active_attempt",
            ),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return self.key
