"""Hosts of the lab: machines that are measured, of which kind of CPU they are, and builders that compile kernels."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.builds.models import Build, KernelConfig, Toolchain
from server.core import clock
from server.sources.models.watched import words


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


class Host(models.Model):
    """What machines and builders share. What a host does (`state`) and how it is (`health`) are kept apart."""

    class State(models.TextChoices):
        IDLE = "idle", "waiting for work"
        RESERVED = "reserved", "work was given to it"
        WORKING = "working", "working"
        RETURNING = "returning", "on its way back from a session"
        POWER_CYCLING = "power-cycling", "being switched off and on"
        OFFLINE = "offline", "not reached"

    class Health(models.TextChoices):
        GOOD = "good", "good"
        UNKNOWN = "unknown", "to be checked first"
        QUARANTINED = "quarantined", "quarantined"
        MAINTENANCE = "maintenance", "in somebody's hands"
        RETIRED = "retired", "retired"

    name = models.SlugField(max_length=60, unique=True)
    enabled = models.BooleanField(default=True)
    node = models.CharField(max_length=60, blank=True, default="", help_text="Its controller's name for it, if other.")
    state = models.CharField(max_length=20, choices=State.choices, default=State.IDLE)
    state_reason = models.TextField(blank=True, default="")
    state_since = models.DateTimeField(default=clock.now)
    health = models.CharField(max_length=12, choices=Health.choices, default=Health.GOOD)
    health_reason = models.TextField(blank=True)
    health_since = models.DateTimeField(default=clock.now)
    capabilities = words(60, "What it has besides its CPU, for work that asks for it: cxl, numa, 1g-pages ...")
    last_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

    @property
    def node_name(self) -> str:
        return self.node or self.name


def _host_checks(prefix: str) -> list[models.BaseConstraint]:
    return [
        models.CheckConstraint(condition=Q(state__in=list(Host.State.values)), name=f"{prefix}_state_known"),
        models.CheckConstraint(condition=Q(health__in=list(Host.Health.values)), name=f"{prefix}_health_known"),
    ]


class Facts(models.Model):
    """What probes saw of a machine that is alike in its boots: one row, however many boots showed it.

    Documents are kept apart from boots and machines, so that whoever reads many of those never reads them by accident.
    """

    sha256 = models.CharField(max_length=64, unique=True, help_text="Of the document as canonical JSON.")
    virtual = models.BooleanField(help_text="Whether the probe saw a hypervisor.")
    fingerprint = models.CharField(
        max_length=100, blank=True, help_text="Of hardware and firmware (server/lab/hosts/probes.py)."
    )
    document = models.JSONField()

    class Meta:
        verbose_name_plural = "facts"

    def __str__(self) -> str:
        return f"facts {self.sha256[:12]}"


class Builder(Host):
    """One host that compiles kernels."""

    arches = words(20, "Architectures it compiles for, natively or across.")
    toolchains = words(60, "Names of the toolchains it has; empty: all.")
    capacity = models.PositiveIntegerField(default=1, help_text="Builds at the same time.")
    jobs = models.PositiveIntegerField(default=0, help_text="make -j of one build; 0: the site's setting.")

    class Meta:
        constraints = [
            *_host_checks("builder"),
            models.CheckConstraint(condition=Q(capacity__gte=1), name="builder_capacity_enough"),
        ]
        ordering = ["name"]


class Machine(Host):
    """One host that boots kernels; a virtual one says so from probe to page."""

    class Clock(models.TextChoices):
        WALL = "wall", "wall-clock time"
        INSTRUCTIONS = (
            "instructions",
            "counted instructions (1 ns each), blind to caches",
        )

    uarch = models.ForeignKey(Microarchitecture, on_delete=models.PROTECT, related_name="machines")
    virtual = models.BooleanField(
        default=False, help_text="What it measures is no evidence: proved to be virtual, or doubted and nobody's word."
    )
    proved_virtual = models.BooleanField(
        default=False, help_text="Its registration or a probe says so: no word takes it back."
    )
    doubts = models.JSONField(
        default=dict, blank=True, help_text="Why probes do not call it physical: sentences by code."
    )
    physical_by = models.CharField(max_length=150, blank=True, default="", help_text="Who said that it is.")
    physical_at = models.DateTimeField(null=True, blank=True)
    physical_reason = models.TextField(blank=True, default="")
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
    health_hold = models.TextField(
        blank=True,
        default="",
        help_text="What alone lifts its quarantine, for people; empty: a health session that passes, too.",
    )
    health_build = models.ForeignKey(
        Build,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Kernel of its health sessions; empty: the newest of a watched tree that it can boot.",
    )
    boot_id = models.CharField(
        max_length=36, blank=True, default="", help_text="Of the system that it was last seen in."
    )
    safe = models.BooleanField(
        null=True, blank=True, default=None, help_text="Whether that was the safe kernel; null: not told."
    )

    class Meta:
        constraints = [
            *_host_checks("machine"),
            models.CheckConstraint(
                condition=Q(clock__in=["wall", "instructions"]),
                name="machine_clock_known",
            ),
            models.CheckConstraint(condition=Q(boots_per_side__gte=2), name="machine_boots_enough"),
        ]
        ordering = ["uarch__name", "name"]

    @property
    def is_held(self) -> bool:
        """Whether it is in a quarantine that no health session lifts."""
        return self.health == self.Health.QUARANTINED and self.health_hold != ""


class Asker(models.Model):
    """A host that asks for work by itself, as it last did: what a dispatcher without a controller knows of it."""

    scope = models.CharField(max_length=10, help_text="Of its token: machine, builder or control.")
    subject = models.CharField(max_length=100)
    asked_at = models.DateTimeField(default=clock.now)
    host = models.CharField(max_length=255, blank=True, default="", help_text="As its agent names it.")
    agent_version = models.CharField(max_length=60, blank=True, default="")
    keys = words(60, "Attempts that it had under way.")
    boot_id = models.CharField(max_length=36, blank=True, default="", help_text="Of the system that asked last.")
    boot_since = models.DateTimeField(default=clock.now, help_text="When that system asked first.")
    boots_before = words(36, "Of systems that asked before it, the latest first.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "subject"], name="asker_once")]

    def __str__(self) -> str:
        return f"{self.scope} {self.subject}"


class Enrolment(models.Model):
    """A code by which one host gets its token, once; the row stays, for who looks who let whom in."""

    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the code.")
    scope = models.CharField(max_length=10)
    subject = models.CharField(max_length=100, help_text="The machine, builder or control host that it is for.")
    made_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_from = models.CharField(max_length=60, blank=True, default="", help_text="The network it was shown from.")
    host = models.CharField(max_length=255, blank=True, default="", help_text="As its agent names it.")
    facts = models.JSONField(default=dict, blank=True, help_text="What the agent's probe saw there.")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"enrolment of {self.scope} {self.subject}"


class MachineFacts(models.Model):
    """All that the last boot's probe saw of a machine."""

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.CASCADE, related_name="facts")
    document = models.JSONField()

    class Meta:
        verbose_name_plural = "machine facts"

    def __str__(self) -> str:
        return f"facts of machine {self.pk}"


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
