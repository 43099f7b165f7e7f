"""Trials: two revisions compared on some machines to answer one question; their sessions, the boots in these, and
power cycles.
"""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.builds.models import Build
from server.core.states import Stateful, state_check
from server.lab.models.host import Facts, Machine
from server.sources.models import Revision, Series
from server.sources.models.watched import words


class TrialState(models.TextChoices):
    WANTED = "wanted", "waiting for its kernels"
    MEASURING = "measuring", "on its machines"
    DONE = "done", "measured"
    FAILED = "failed", "cannot be measured"
    CANCELED = "canceled", "no longer wanted"


class Trial(Stateful):
    """Base against patched revision on some machines: one session on each, judged together as one family of cells.

    `key` is made from the question, so that asking it twice makes one trial.
    """

    State = TrialState

    IDS: ClassVar = {"series": "series_id"}
    NEXT: ClassVar = {
        TrialState.WANTED: frozenset({TrialState.MEASURING, TrialState.DONE, TrialState.FAILED, TrialState.CANCELED}),
        TrialState.MEASURING: frozenset({TrialState.DONE, TrialState.FAILED, TrialState.CANCELED}),
        # A kernel that failed falsely was asked for again.
        TrialState.FAILED: frozenset({TrialState.MEASURING}),
    }
    FINAL: ClassVar = frozenset({TrialState.DONE, TrialState.FAILED, TrialState.CANCELED})

    class Purpose(models.TextChoices):
        SERIES = "series", "what a series costs"
        RETEST = "retest", "the whole question once more, for a person"
        PATCH = "patch", "what one patch of a series adds"
        LAYOUT = "layout", "whether an effect is only how code is placed"
        HEAD = "head", "a tree's head against its reference kernel"
        CONFIRM = "confirm", "whether a suspected change is there"
        BISECT = "bisect", "which revision made a change"
        REVERT = "revert", "whether taking a revision back takes its change back"
        FIX = "fix", "whether a change is mended"
        NOISE = "noise", "what a machine shows between equal kernels"

    key = models.CharField(max_length=120, unique=True, help_text="The question: series:12, head:3:45 ...")
    purpose = models.CharField(max_length=10, choices=Purpose.choices)
    series = models.ForeignKey(Series, null=True, blank=True, on_delete=models.PROTECT, related_name="trials")
    base = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="trials_as_base")
    patched = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="trials_as_patched")
    layout = models.BooleanField(default=False, help_text="With the other code layout of each machine's configuration.")
    machines = models.ManyToManyField(
        Machine, blank=True, related_name="trials", help_text="Where; empty: all that the tree is interested in."
    )
    benchmarks = words(100, "What is measured, as in sessions.")
    looks = ArrayField(
        models.PositiveIntegerField(), help_text="Boots a side at which it is judged; the last is the most."
    )
    budget_seconds = models.FloatField(null=True, blank=True, help_text="Machine time of all its sessions; no limit.")
    min_effect = models.FloatField(
        null=True,
        blank=True,
        help_text="Changes below this fraction count as none; empty: what each cell's noise says.",
    )
    answered_at = models.DateTimeField(
        null=True, blank=True, help_text="When its result was taken up by whoever asked."
    )
    priority = models.IntegerField(default=0, help_text="On top of its tree's; the higher, the sooner.")
    tried_at = models.DateTimeField(null=True, blank=True, help_text="When the sweep last tried to plan it.")

    class Meta:
        constraints = [
            state_check(TrialState, "trial_state_known"),
            models.CheckConstraint(
                condition=Q(
                    purpose__in=[
                        "series",
                        "retest",
                        "patch",
                        "layout",
                        "head",
                        "confirm",
                        "bisect",
                        "revert",
                        "fix",
                        "noise",
                    ]
                ),
                name="trial_purpose_known",
            ),
            models.CheckConstraint(condition=Q(looks__len__gt=0), name="trial_has_looks"),
            models.UniqueConstraint(fields=["series"], condition=Q(purpose="series"), name="trial_of_series_once"),
        ]
        indexes = [
            # What the sweeps look for, a few among very many.
            models.Index(fields=["state"], condition=Q(state__in=["wanted", "measuring"]), name="trial_open"),
            models.Index(
                fields=["id"],
                condition=Q(answered_at=None, state__in=["done", "failed", "canceled"]),
                name="trial_unanswered",
            ),
            models.Index(fields=["purpose", "-id"], name="trial_of_purpose"),
            # Whether an idle machine had one lately.
            models.Index(fields=["created_at"], condition=Q(purpose="noise"), name="trial_of_night"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"trial {self.key}"


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
    IDS: ClassVar = {"series": "series_id", "trial": "trial_id", "machine": "machine_id"}
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

    purpose = models.CharField(max_length=10, choices=Purpose.choices, default=Purpose.SERIES)
    series = models.ForeignKey(Series, null=True, blank=True, on_delete=models.PROTECT, related_name="sessions")
    trial = models.ForeignKey(
        Trial,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="sessions",
        help_text="Empty: a health session.",
    )
    looks = ArrayField(
        models.PositiveIntegerField(),
        default=list,
        blank=True,
        help_text="Boots a side at which it is judged (stats/comparison/decisions.py); empty: a health session.",
    )
    concluded_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was decided that no more boots are wanted."
    )
    cut_short = models.BooleanField(default=False, help_text="More boots might have told more; the budget was spent.")
    priority = models.IntegerField(default=0, help_text="On top of its tree's; the higher, the sooner.")
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
                condition=Q(purpose="series", series__isnull=False, trial__isnull=False)
                | Q(purpose="trial", series__isnull=True, trial__isnull=False)
                | Q(purpose="health", series__isnull=True, trial__isnull=True),
                name="session_purpose_known",
            ),
            models.UniqueConstraint(fields=["trial", "machine"], name="session_of_trial_once"),
        ]
        indexes = [
            # What the scheduler, sweeps and pages look for, a few among very many.
            models.Index(fields=["machine"], condition=Q(state="planned"), name="session_waiting"),
            models.Index(
                fields=["state"], condition=Q(state__in=["planned", "dispatched", "running"]), name="session_open"
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

    IDS: ClassVar = {"session": "session_id", "boot": "position"}
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
    values_sha256 = models.CharField(
        max_length=64, blank=True, default="", help_text="Of all values that its result brought, to know it again by."
    )
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
        help_text="Of what the probe saw, the part that is this boot's own (server/lab/hosts/probes.py).",
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
