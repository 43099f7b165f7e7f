"""Sessions, the boots inside them, and power cycles: what machines are asked to do."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, Value

from server.builds.models import Build
from server.core.states import Stateful, state_check
from server.lab.models.hosts import Facts, Machine
from server.lab.models.trials import Trial
from server.sources.models import Series
from server.sources.models.trees import words


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
        # The sequential design asks for more boots of what is done.
        SessionState.DONE: frozenset({SessionState.PLANNED}),
        # A kernel that failed falsely was asked for again.
        SessionState.FAILED: frozenset({SessionState.PLANNED}),
    }
    FINAL: ClassVar = frozenset({SessionState.DONE, SessionState.FAILED, SessionState.CANCELED})
    # All others, for queries: a database that is asked for what is not final reads all that is.
    OPEN: ClassVar = (SessionState.PLANNED, SessionState.DISPATCHED, SessionState.RUNNING)

    class Purpose(models.TextChoices):
        SERIES = "series", "what a series costs"
        TRIAL = "trial", "another trial than that of a whole series"
        HEALTH = "health", "whether its machine is well: one kernel on both sides"

    purpose = models.CharField(
        max_length=10, choices=Purpose.choices, default=Purpose.SERIES, db_default=Purpose.SERIES
    )
    series = models.ForeignKey(Series, null=True, blank=True, on_delete=models.PROTECT, related_name="sessions")
    trial = models.ForeignKey(
        Trial,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="sessions",
        help_text="Empty: a health session, or one of before there were trials.",
    )
    looks = ArrayField(
        models.PositiveIntegerField(),
        default=list,
        db_default=Value([]),
        blank=True,
        help_text="Boots a side at which it is judged (server/stats/sequential.py); empty: once, when all are there.",
    )
    concluded_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was decided that no more boots are wanted."
    )
    cut_short = models.BooleanField(
        default=False, db_default=False, help_text="More boots might have told more; the budget was spent."
    )
    priority = models.IntegerField(default=0, db_default=0, help_text="On top of its tree's; the higher, the sooner.")
    deadline_at = models.DateTimeField(null=True, blank=True, help_text="When its result is wanted.")
    needs = words(60, "Capabilities that its machine must have.")
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
            models.CheckConstraint(
                condition=Q(purpose="series", series__isnull=False)
                | Q(purpose="trial", series__isnull=True, trial__isnull=False)
                | Q(purpose="health", series__isnull=True),
                name="session_purpose_known",
            ),
            models.UniqueConstraint(fields=["trial", "machine"], name="session_of_trial_once"),
            models.UniqueConstraint(fields=["series", "machine"], name="session_once"),
        ]
        indexes = [
            # What the scheduler, sweeps and pages look for, a few among very many.
            models.Index(fields=["machine"], condition=Q(state="planned"), name="session_waiting"),
            models.Index(
                fields=["state"], condition=Q(state__in=["planned", "dispatched", "running"]), name="session_open"
            ),
            models.Index(
                fields=["series"], condition=Q(trial=None, series__isnull=False), name="session_before_trials"
            ),
            # What pages and scripts ask for, newest first.
            models.Index(fields=["machine", "-id"], name="session_of_machine"),
            models.Index(fields=["machine", "created_at"], name="session_of_machine_since"),
            models.Index(fields=["purpose", "-id"], name="session_of_purpose"),
            models.Index(fields=["created_at"], name="session_since"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"session {self.pk} on {self.machine.name}"


# Outcome of a boot that measured, and whose session was over before its result came.
LATE = "late"


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
        # Only where it failed without having begun.
        BootState.FAILED: frozenset({BootState.PLANNED}),
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
    facts = models.ForeignKey(Facts, null=True, blank=True, on_delete=models.PROTECT, related_name="boots")
    notes = models.JSONField(
        default=list,
        blank=True,
        help_text="Cases that gave no measurement, with the reason.",
    )

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
        # Counted on the home page, a few among very many.
        indexes = [models.Index(fields=["state"], condition=Q(state="running"), name="boot_running")]
        ordering = ["session", "position"]

    def __str__(self) -> str:
        return f"boot {self.position} ({self.arm}) of session {self.session_id}"


class Conditions(models.Model):
    """What surrounded the cases of one boot, at length; apart from the boot, which is read with every measurement."""

    boot = models.OneToOneField(Boot, primary_key=True, on_delete=models.CASCADE, related_name="conditions")
    facts = models.JSONField(
        default=dict,
        blank=True,
        help_text="Of what the probe saw, the part that is this boot's own (server/lab/facts.py).",
    )
    document = models.JSONField(
        default=dict, blank=True, help_text="Settings, samples and counters around the cases (agent-protocol.md)."
    )
    console_tail = models.TextField(blank=True, help_text="The last that its console showed.")

    class Meta:
        verbose_name_plural = "conditions"

    def __str__(self) -> str:
        return f"conditions of boot {self.pk}"


class PowerCycleState(models.TextChoices):
    WANTED = "wanted", "to be done"
    DISPATCHED = "dispatched", "given to the lab's control host"
    RUNNING = "running", "being done"
    DONE = "done", "switched off and on"
    FAILED = "failed", "not done"
    CANCELED = "canceled", "no longer wanted"


class PowerCycle(Stateful):
    """One machine to be switched off and on from outside, because it does not come back by itself."""

    State = PowerCycleState

    # As with sessions, an end that an agent tells late finds one that was planned again meanwhile.
    NEXT: ClassVar = {
        PowerCycleState.WANTED: frozenset(
            {PowerCycleState.DISPATCHED, PowerCycleState.DONE, PowerCycleState.FAILED, PowerCycleState.CANCELED}
        ),
        PowerCycleState.DISPATCHED: frozenset(
            {
                PowerCycleState.RUNNING,
                PowerCycleState.WANTED,
                PowerCycleState.DONE,
                PowerCycleState.FAILED,
                PowerCycleState.CANCELED,
            }
        ),
        PowerCycleState.RUNNING: frozenset(
            {PowerCycleState.DONE, PowerCycleState.FAILED, PowerCycleState.WANTED, PowerCycleState.CANCELED}
        ),
    }
    OPEN: ClassVar = (PowerCycleState.WANTED, PowerCycleState.DISPATCHED, PowerCycleState.RUNNING)

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="power_cycles")

    class Meta:
        constraints = [
            state_check(PowerCycleState, "power_cycle_state_known"),
            models.UniqueConstraint(
                fields=["machine"],
                condition=Q(state__in=["wanted", "dispatched", "running"]),
                name="power_cycle_once_at_a_time",
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"power cycle {self.pk} of {self.machine.name}"
