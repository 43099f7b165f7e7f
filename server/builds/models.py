"""Kernels: what is wanted, what was built, and the files that came out."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models

from server.core.states import Stateful, state_check
from server.sources.models import Revision

_SET = re.compile(r"(CONFIG_[A-Za-z0-9_]+)=(\S.*)")
_UNSET = re.compile(r"# (CONFIG_[A-Za-z0-9_]+) is not set")
# Texts of this size hold every symbol that a kernel has; more is a slip or mischief.
MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Part:
    """One text of a configuration, with the name under which people know it."""

    name: str
    text: str


@dataclass(frozen=True)
class Overruled:
    """A symbol that two parts set to different values; the later part counts."""

    symbol: str
    earlier: str
    earlier_value: str
    later: str
    later_value: str

    def __str__(self) -> str:
        ends = f"{self.later} sets it to {self.later_value}, which counts"
        return f"{self.symbol}: {self.earlier} sets it to {self.earlier_value}, {ends}"


def read_lines(text: str) -> Mapping[str, str]:
    """Symbol to value, "n" for one that is not set; the later line counts. Comments and empty lines are skipped.

    Raises ValueError with the number of a line that is neither.
    """
    return dict(_assignments(text))


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text)} characters, {MOST_CHARACTERS} are allowed")
    for number, line in enumerate(text.splitlines(), start=1):
        assignment = _SET.fullmatch(line.strip()) or _UNSET.fullmatch(line.strip())
        if assignment is not None:
            yield assignment[1], assignment[2].strip() if assignment.re is _SET else "n"
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} is no CONFIG_ line: {line.strip()[:80]}")


def merged(parts: Iterable[Part]) -> str:
    """The parts as one text in their order, the later lines of a symbol going before the earlier.

    A single part is given as it is. Of several, a line that a later part overrules is left out, so that the text can be
    demanded of a finished .config line by line.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0].text
    values: dict[str, str] = {}
    for part in parts:
        for symbol, value in read_lines(part.text).items():
            # The place of a symbol is where it is said last.
            values.pop(symbol, None)
            values[symbol] = value
    return "".join(f"{as_line(symbol, value)}\n" for symbol, value in values.items())


def as_line(symbol: str, value: str) -> str:
    return f"# {symbol} is not set" if value == "n" else f"{symbol}={value}"


def overruled(parts: Iterable[Part]) -> list[Overruled]:
    """Symbols that a later part, or a later line of one, sets to another value, in the order in which that is read."""
    said: dict[str, tuple[str, str]] = {}
    found = []
    for part in parts:
        for symbol, value in _assignments(part.text):
            earlier, earlier_value = said.get(symbol, (part.name, value))
            if earlier_value != value:
                found.append(Overruled(symbol, earlier, earlier_value, part.name, value))
            said[symbol] = (part.name, value)
    return found


def _check_lines(field: str, text: str) -> None:
    try:
        read_lines(text)
    except ValueError as error:
        raise ValidationError({field: str(error)}) from error


class ConfigFragment(models.Model):
    """CONFIG_ lines that several configurations share, by name."""

    name = models.SlugField(max_length=60, unique=True)
    arch = models.CharField(max_length=20, blank=True, help_text="Empty: for every architecture.")
    lines = models.TextField(help_text="CONFIG_ lines; each must survive olddefconfig or the build is refused.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        _check_lines("lines", self.lines)


class KernelConfig(models.Model):
    """A named kernel configuration: a make target, and fragments merged over it in their order, its own last."""

    name = models.SlugField(max_length=60, unique=True)
    arch = models.CharField(max_length=20)
    base = models.CharField(
        max_length=60,
        default="allnoconfig",
        help_text="make target the fragment is merged over",
    )
    fragments = ArrayField(
        models.CharField(max_length=60),
        default=list,
        blank=True,
        help_text="Names of shared fragments, merged in this order.",
    )
    fragment = models.TextField(
        blank=True, help_text="CONFIG_ lines; each must survive olddefconfig or the build is refused."
    )
    perf = models.BooleanField(default=False, help_text="Build perf of the same tree, too.")
    layout_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="layouts",
        help_text="The configuration of which this is another code layout.",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        _check_lines("fragment", self.fragment)
        arches = dict(ConfigFragment.objects.filter(name__in=self.fragments).values_list("name", "arch"))
        for name in self.fragments:
            if name not in arches:
                raise ValidationError({"fragments": f"there is no fragment {name}"})
            if arches[name] not in {"", self.arch}:
                raise ValidationError({"fragments": f"fragment {name} is for {arches[name]}, not for {self.arch}"})
        if self.layout_of is not None and self.layout_of.arch != self.arch:
            wrong = f"{self.layout_of.name} is for {self.layout_of.arch}, not for {self.arch}"
            raise ValidationError({"layout_of": wrong})


class Toolchain(models.Model):
    """A compiler that builders have under this name."""

    class Family(models.TextChoices):
        GCC = "gcc", "GCC and binutils"
        CLANG = "clang", "clang and LLVM's tools"

    name = models.SlugField(max_length=60, unique=True)
    compiler = models.CharField(max_length=100, help_text="Program, for make's CC=; with a prefix when it crosses.")
    family = models.CharField(max_length=10, choices=Family.choices, default=Family.GCC)
    cross = models.JSONField(
        default=dict,
        blank=True,
        help_text='Prefix of the programs for each foreign architecture: {"arm64": "aarch64-linux-gnu-"}.',
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        prefixes = self.cross.values() if isinstance(self.cross, dict) else [None]
        if not all(isinstance(prefix, str) for prefix in prefixes):
            raise ValidationError({"cross": 'is a table of prefixes: {"arm64": "aarch64-linux-gnu-"}'})


class BuildState(models.TextChoices):
    WANTED = "wanted", "waiting for a builder"
    DISPATCHED = "dispatched", "given to a builder"
    RUNNING = "running", "being built"
    BUILT = "built", "artifacts stored"
    FAILED = "failed", "does not build"
    CANCELED = "canceled", "no longer wanted"
    EXPIRED = "expired", "built; its files were removed"


class Build(Stateful):
    """One kernel made once: unique by source tree hash, config, toolchain and architecture."""

    State = BuildState

    # A result that waited in an agent's spool can end a build that was planned again meanwhile.
    IDS: ClassVar = {"revision": "revision_id"}
    NEXT: ClassVar = {
        # Built again, a kernel that comes out as another one leaves its row expired (docs/decisions/0016).
        BuildState.WANTED: frozenset(
            {
                BuildState.DISPATCHED,
                BuildState.BUILT,
                BuildState.FAILED,
                BuildState.CANCELED,
                BuildState.EXPIRED,
            }
        ),
        BuildState.DISPATCHED: frozenset(
            {
                BuildState.RUNNING,
                BuildState.WANTED,
                BuildState.BUILT,
                BuildState.FAILED,
                BuildState.CANCELED,
                BuildState.EXPIRED,
            }
        ),
        BuildState.RUNNING: frozenset(
            {BuildState.BUILT, BuildState.FAILED, BuildState.WANTED, BuildState.CANCELED, BuildState.EXPIRED}
        ),
        BuildState.BUILT: frozenset({BuildState.EXPIRED}),
        BuildState.EXPIRED: frozenset({BuildState.WANTED, BuildState.BUILT}),
        BuildState.FAILED: frozenset({BuildState.WANTED}),
        BuildState.CANCELED: frozenset({BuildState.WANTED, BuildState.BUILT, BuildState.FAILED, BuildState.EXPIRED}),
    }

    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="builds")
    tree_sha = models.CharField(max_length=40)
    config = models.ForeignKey(KernelConfig, on_delete=models.PROTECT, related_name="builds")
    toolchain = models.ForeignKey(Toolchain, on_delete=models.PROTECT, related_name="builds")
    arch = models.CharField(max_length=20)
    recipe = models.CharField(
        max_length=64, help_text="Hash of what config and toolchain said when it was wanted; edited ones build anew."
    )
    build_id = models.CharField(
        max_length=64,
        blank=True,
        help_text="GNU build id of vmlinux, as the kernel shows it",
    )
    text_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="SHA-256 of vmlinux's text: two kernels with the same one run the same code.",
    )
    kernel_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="SHA-256 of vmlinux's text and data: between two kernels with the same one is nothing to measure.",
    )
    compiler_version = models.CharField(max_length=200, blank=True)
    seconds = models.FloatField(null=True, blank=True)
    given_up = models.BooleanField(
        default=False, help_text="Failed for our reasons, not the kernel's: another series that needs it tries again."
    )
    first_error = models.TextField(blank=True, default="", help_text="Of its log, with its lines around.")
    used_at = models.DateTimeField(null=True, blank=True, help_text="When it was last wanted or measured.")
    pinned = models.BooleanField(default=False, help_text="Its files are never removed for room.")
    log_tail = models.TextField(blank=True)

    class Meta:
        constraints = [
            state_check(BuildState, "build_state_known"),
            models.UniqueConstraint(fields=["tree_sha", "config", "toolchain", "arch", "recipe"], name="build_once"),
            models.CheckConstraint(
                condition=~models.Q(state="built") | ~models.Q(build_id=""),
                name="built_has_id",
            ),
        ]
        indexes = [
            # What the scheduler, sweeps and pages look for, a few among very many.
            models.Index(fields=["config"], condition=models.Q(state="wanted"), name="build_waiting"),
            models.Index(
                fields=["state"], condition=models.Q(state__in=["wanted", "dispatched", "running"]), name="build_open"
            ),
            # What scripts ask for.
            models.Index(fields=["build_id"], condition=~models.Q(build_id=""), name="build_of_id"),
            models.Index(fields=["text_hash"], condition=~models.Q(text_hash=""), name="build_of_text"),
            models.Index(fields=["arch", "-id"], name="build_of_arch"),
            models.Index(fields=["created_at"], name="build_since"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"build {self.pk} of {self.revision.sha[:12]} ({self.config.name})"


class Artifact(models.Model):
    """One file of a build, stored under its SHA-256."""

    class Kind(models.TextChoices):
        IMAGE = "image", "bootable kernel image"
        CONFIG = "config", ".config"
        SYSTEM_MAP = "system-map", "System.map"
        MODULES = "modules", "modules, and those of the benchmarks"
        PERF = "perf", "perf of the same tree"
        LOG = "log", "build log"

    build = models.ForeignKey(Build, on_delete=models.CASCADE, related_name="artifacts")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    sha256 = models.CharField(max_length=64, db_index=True)
    size = models.PositiveBigIntegerField(help_text="bytes")
    removed_at = models.DateTimeField(null=True, blank=True, help_text="When its file was removed.")
    removal = models.CharField(max_length=200, blank=True, default="", help_text="Why it was removed.")
    checked_at = models.DateTimeField(null=True, blank=True, help_text="When its file was last found to be whole.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["build", "kind"], name="artifact_once")]
        ordering = ["build", "kind"]

    def __str__(self) -> str:
        return f"{self.kind} of build {self.build_id}"
