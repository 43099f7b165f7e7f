"""A small real tree, machines whose speed follows from what a commit holds, and workers that run to the end."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from django.utils import timezone

from server.builds.models import Build
from server.detection.bisection.rounds import begin
from server.detection.models import Finding
from server.detection.on_trial_over import answer_trial
from server.detection.sweep import tend_bisections
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, Machine, Session, Trial
from server.lab.trials.life import plan_trial
from server.results.models import Case, Metric, PackedValues
from server.sources.mirror import mirror, record_revisions, tree_ref
from server.sources.models import Branch, Patch, Revision, Series, Tree
from tests.builders import because, build_case, build_list, build_metric, build_series, build_version, fake_sha, packed
from tests.detection.measured import physical
from tests.sources.posting import NOON

CASE = "fault-4k"
BASE_LEVEL = 5762.0
# Boots differ by half a percent.
NOISE = 0.005
WILD = 0.9
BOOT_TIME = timedelta(seconds=60)


@dataclass
class World:
    """Each commit adds a file; `costs` says by how much a file slows each machine down.

    Kernels of `broken_shas` do not build, those of `dead_shas` do not boot, those of `wild_shas` are fast or slow by
    luck. Files in `comments` are no code; each in `either` has the effect of "either", and all of them no more.
    """

    tree: Tree
    shas: list[str]
    case: Case
    metric: Metric
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    broken_shas: set[str] = field(default_factory=set)
    wild_shas: set[str] = field(default_factory=set)
    dead_shas: set[str] = field(default_factory=set)
    either: set[str] = field(default_factory=set)
    comments: set[str] = field(default_factory=set)
    sessions: int = 0
    _files: dict[str, frozenset[str]] = field(default_factory=dict)

    def files(self, revision: Revision) -> frozenset[str]:
        """What tells its speed: the files of its tree."""
        if revision.tree_sha not in self._files:
            names = mirror().output("ls-tree", "-r", "--name-only", revision.tree_sha).decode().split()
            self._files[revision.tree_sha] = frozenset(names)
        return self._files[revision.tree_sha]

    def level(self, machine: Machine, revision: Revision) -> float:
        level = BASE_LEVEL
        files = self.files(revision)
        for name in [*files, *(["either"] if files & self.either else [])]:
            level *= self.costs.get(machine.name, {}).get(name, 1.0)
        return level

    def revisions(self) -> list[Revision]:
        return record_revisions(tree=self.tree, shas=self.shas)

    def series(self) -> Series:
        """The commits after the first one as patches of an applied series."""
        base, *patches = self.revisions()
        series = build_series(build_list(tree=self.tree), base=base, head=patches[-1], total=len(patches))
        for patch, revision in zip(series.patches.order_by("index"), patches, strict=True):
            Patch.objects.filter(pk=patch.pk).update(revision=revision, subject=revision.subject)
        return series

    def run(self, rounds: int = 60) -> None:
        """Build, boot, look, answer and tend until nothing is left to do."""
        for _ in range(rounds):
            tend_bisections()
            if not self.work():
                return
        raise AssertionError("the world did not come to rest")

    def work(self) -> bool:
        """One turn of all workers but the sweep of bisections; whether there was anything to do."""
        busy = False
        for trial in Trial.objects.exclude(state__in=Trial.FINAL):
            busy = True
            if trial.state == Trial.State.WANTED:
                plan_trial(trial_id=trial.pk)
                self._build()
                plan_trial(trial_id=trial.pk)
                continue
            waiting = Session.objects.filter(trial=trial, state=Session.State.PLANNED)
            for session in waiting.select_related("machine", "base_build__revision", "patched_build__revision"):
                self._boot(session)
            look_at_trial(trial_id=trial.pk)
        for pk in Trial.objects.filter(state__in=Trial.FINAL, answered_at=None).values_list("pk", flat=True):
            busy = answer_trial(trial_id=pk) or busy
        return busy

    def _build(self) -> None:
        for build in Build.objects.filter(state=Build.State.WANTED).select_related("revision"):
            files = self.files(build.revision)
            if build.revision.sha in self.broken_shas:
                build.advance(Build.State.FAILED, because("mm/memory.c:7: error: no such thing"))
                continue
            code = sha256(" ".join(sorted(files - self.comments)).encode()).hexdigest()
            build.advance(Build.State.BUILT, build_id=fake_sha(10**8 + build.pk), kernel_hash=code)

    def _boot(self, session: Session) -> None:
        if not session.boots.exclude(state=Boot.State.PLANNED).exists():
            self.sessions += 1
        boots = list(session.boots.filter(state=Boot.State.PLANNED).order_by("position"))
        kernels = {Boot.Arm.BASE: session.base_build, Boot.Arm.PATCHED: session.patched_build}
        dead = {arm for arm, build in kernels.items() if build.revision.sha in self.dead_shas}
        now = timezone.now()
        for boot in boots:
            build = kernels[Boot.Arm(boot.arm)]
            boot.state = Boot.State.FAILED if boot.arm in dead else Boot.State.MEASURED
            boot.boot_id = f"{boot.pk:08x}-1111-4000-8000-{boot.pk:012x}"
            boot.build_id, boot.started_at, boot.ended_at = build.build_id, now, now + BOOT_TIME
        Boot.objects.bulk_update(boots, ["state", "boot_id", "build_id", "started_at", "ended_at"])
        levels = {arm: self.level(session.machine, build.revision) for arm, build in kernels.items()}
        cores, version = session.machine.core_types.get(), build_version(self.case)
        cell = {"metric": self.metric, "core_type": cores, "version": version}
        PackedValues.objects.bulk_create(
            packed(self.case, [value] * 4, 1, boot=boot, **cell)
            for boot in boots
            if boot.arm not in dead
            for value in [levels[Boot.Arm(boot.arm)] * (1 + self.luck(boot, kernels[Boot.Arm(boot.arm)]))]
        )
        session.advance(Session.State.FAILED if dead else Session.State.DONE, because("no login" if dead else ""))

    def luck(self, boot: Boot, build: Build) -> float:
        """Sessions differ in it, runs of the tests do not."""
        noise = WILD if build.revision.sha in self.wild_shas else NOISE
        return abs(1 + random.Random(f"{self.sessions} {boot.position}").gauss(0, noise)) - 1  # noqa: S311 (noise)


def make_world(where: Path, patches: int, edit: Callable[[int], Mapping[str, str]] | None = None) -> World:
    """A tree with a base and so many commits on top, written straight into the mirror: one start of git for all."""
    commits: list[tuple[str, Mapping[str, str]]] = [("mm: Begin", {"mm/memory.c": "base\n"})]
    commits += [
        (f"mm: Change {number}", edit(number) if edit else {f"p{number}": f"{number}\n"})
        for number in range(1, patches + 1)
    ]
    tree = Tree.objects.create(name="stable", url=f"file://{where}", branch_patterns=["master"])
    ref = tree_ref(tree, "master")
    mirror().output("fast-import", "--quiet", stdin="".join(_stream(ref, commits)).encode())
    shas = mirror().output("rev-list", "--reverse", ref).decode().split()
    head = record_revisions(tree=tree, shas=shas)[-1]
    Branch.objects.create(tree=tree, name="master", head=head)
    return World(tree, shas, build_case(CASE), build_metric())


def _stream(ref: str, commits: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """What git fast-import reads: each commit on top of the one before, a minute later."""
    for number, (subject, files) in enumerate(commits):
        yield f"commit {ref}\ncommitter Ada Author <ada@example.org> {NOON + 60 * number} +0000\n"
        yield f"data {len(subject)}\n{subject}\n"
        for name, content in files.items():
            yield f"M 100644 inline {name}\ndata {len(content)}\n{content}\n"


def judged(world: World, *machines: Machine) -> Finding:
    """The finding of the world's series, measured at its ends on these machines, with its bisections begun."""
    series = world.series()
    assert series.base is not None
    assert series.head is not None
    trial = Trial.objects.create(
        key=f"series:{series.pk}",
        purpose=Trial.Purpose.SERIES,
        series=series,
        base=series.base,
        patched=series.head,
        looks=[4, 6, 8, 12, 16],
        state=Trial.State.WANTED,
    ).record_creation()
    trial.machines.set(machines)
    while world.work():
        pass
    finding = Finding.objects.get(series=series)
    begin(finding)
    finding.refresh_from_db()
    return finding


def zen3(name: str = "zen3-a") -> Machine:
    return physical(name, "zen3")


def zen5(name: str = "zen5-a") -> Machine:
    return physical(name, "zen5")
