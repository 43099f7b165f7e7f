"""Many boots of a session stored at once, as `record_boot` stores each: a session of thousands takes an hour there."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from demo.lab.history.truth import CASES_EACH, WARMUP, Array, Kernel, Levels, Truth
from server.builds.models import Artifact, Build
from server.builds.records import ArtifactFile, BuildResult, record_build
from server.builds.storage import put_artifact
from server.core import clock
from server.core.models import Transition
from server.core.tasks import enqueue
from server.lab.attempts.boots import BootReport
from server.lab.attempts.ends import end_attempt
from server.lab.attempts.life import claim_attempt, open_attempt
from server.lab.hosts.probes import keep_facts
from server.lab.models import Boot, BootState, Machine, Session
from server.lab.scheduling.placement import Placement
from server.results.measurements import Values, case_orders, record_boot
from server.results.models import Benchmark, BenchmarkVersion, Case, Metric
from server.results.packing import MeasuredCase, copy_measurements
from server.sources.mirror import mirror
from server.sources.models import Revision

_FIELDS = ("state", "state_since", "outcome", "boot_id", "build_id", "started_at", "ended_at")


@dataclass(frozen=True)
class Booted:
    """A boot with what an agent would tell of it."""

    boot: Boot
    boot_id: str
    build_id: str
    started_at: datetime
    ended_at: datetime
    facts: Mapping[str, Any]
    values: Sequence[Values]


class Bulk:
    """Knows the rows of cases and metrics, which stay as they are."""

    def __init__(self) -> None:
        rows = Case.objects.select_related("benchmark")
        self._cases = {(row.benchmark.name, row.name): row.pk for row in rows}
        self._metrics = {(row.benchmark.name, row.name): row.pk for row in Metric.objects.select_related("benchmark")}
        self._versions = {
            benchmark.name: BenchmarkVersion.objects.get_or_create(benchmark=benchmark, hash=benchmark.version)[0].pk
            for benchmark in Benchmark.objects.all()
        }

    def store(self, session: Session, booted: Sequence[Booted]) -> None:
        """Not the last ones of the session: `record_boot` ends it, and wakes who waits for it."""
        now, core_type = clock.now(), session.machine.core_types.get().pk
        with transaction.atomic():
            for one in booted:
                row = one.boot
                row.state, row.state_since, row.outcome = BootState.MEASURED, now, "measured"
                row.boot_id, row.build_id = one.boot_id, one.build_id
                row.started_at, row.ended_at = one.started_at, one.ended_at
            Boot.objects.bulk_update([one.boot for one in booted], _FIELDS)
            for one in booted:
                keep_facts(one.boot, one.facts)
            Transition.objects.bulk_create(
                Transition(
                    trace=one.boot.trace, subject="boot", subject_id=one.boot.pk, before="planned", after="measured"
                )
                for one in booted
            )
            copy_measurements(((one.boot.pk, self._measured(one.values, core_type)) for one in booted), now)

    def _measured(self, values: Sequence[Values], core_type: int) -> Iterator[MeasuredCase]:
        for item in values:
            case, metric = self._cases[item.benchmark, item.case], self._metrics[item.benchmark, item.metric]
            version = self._versions[item.benchmark]
            yield MeasuredCase(case, metric, core_type, version, item.warmup, item.values)


# A server's way through its firmware to a shell, and what a case takes with its runs.
BOOT_SECONDS, CASE_SECONDS = 90.0, 4.0
_FILE = re.compile(r"mm/file-(\d+)\.c")
_NAME = re.compile(r"bench-(\d+)/case-(\d+)")


class Hosts:
    """`now` is the place of the branch's head: machines drift, and are maintained, as it moves on."""

    def __init__(self, truth: Truth, levels: Levels, machines: Sequence[Machine]) -> None:
        self.now = 0
        self._truth, self._levels = truth, levels
        self._numbers = {machine.pk: number for number, machine in enumerate(machines)}
        self._kernels: dict[str, Kernel] = {}
        self._bulk = Bulk()

    def build_all(self) -> int:
        """Give every kernel that waits for a builder its result."""
        waiting = list(Build.objects.filter(state="wanted").select_related("revision"))
        for build in waiting:
            result = self._made(build)
            with transaction.atomic():
                record_build(build=build, result=result)
                enqueue("builds.sweep")
        return len(waiting)

    def _made(self, build: Build) -> BuildResult:
        kernel = self._kernel(build.revision)
        if kernel.place in self._truth.unbuildable:
            return BuildResult("failed", "mm/file.c:1: error: expected ';'", 40.0, "", "gcc 12", "error", ())
        content = f"the kernel of {build.tree_sha}".encode()
        image = ArtifactFile(Artifact.Kind.IMAGE, hashlib.sha256(content).hexdigest(), len(content))
        put_artifact(image.sha256, [content])
        text = hashlib.sha256(self._levels.text(kernel).encode()).hexdigest()
        return BuildResult("built", "", 300.0, build.tree_sha, "gcc 12", "", (image,), text_hash=text, kernel_hash=text)

    def _kernel(self, revision: Revision) -> Kernel:
        """What a commit is, told by its files."""
        if revision.sha not in self._kernels:
            names = mirror().output("ls-tree", "-r", "--name-only", revision.sha).decode()
            there = {int(place) for place in _FILE.findall(names)}
            self._kernels[revision.sha] = Kernel(max(there), frozenset(range(max(there))) - there)
        return self._kernels[revision.sha]

    def measure_all(self) -> int:
        """Have every session that waits measured on its machine, if that is there; returns how many were."""
        waiting = Session.objects.filter(state="planned", machine__health=Machine.Health.GOOD).order_by("pk")
        sessions = list(
            waiting.select_related("machine__uarch", "base_build__revision", "patched_build__revision", "trial")
        )
        for session in sessions:
            self._measure(session)
        return len(sessions)

    def _measure(self, session: Session) -> None:
        attempt = open_attempt(Placement(session, session.machine, 1), "simulated")
        assert attempt is not None
        claim_attempt(attempt, "simulated")
        orders = case_orders(session.machine, session.benchmarks)
        cases = [_case_index(f"{order.benchmark}/{order.case}") for order in orders]
        planned = session.boots.filter(state=BootState.PLANNED).order_by("position")
        *some, last = [self._booted(session, boot, cases, number) for number, boot in enumerate(planned)]
        self._bulk.store(session, some)
        report = BootReport("measured", "", last.boot_id, last.build_id, last.started_at, last.ended_at, last.facts)
        record_boot(attempt=attempt, position=last.boot.position, report=report, measured=last.values)
        end_attempt(attempt=attempt, agent="simulated", outcome="done", reason="")

    def _booted(self, session: Session, boot: Boot, cases: Sequence[int], number: int) -> Booted:
        build = session.base_build if boot.arm == Boot.Arm.BASE else session.patched_build
        values = self._levels.values(
            machine=self._numbers[session.machine_id],
            kernel=self._kernel(build.revision),
            now=self.now,
            session=session.trial.key if session.trial else f"session {session.pk}",
            position=boot.position,
        )
        seconds = BOOT_SECONDS + CASE_SECONDS * len(cases)
        begun = clock.now() + timedelta(seconds=number * seconds)
        until, boot_id = begun + timedelta(seconds=seconds), f"{session.pk}-{boot.position}"
        uarch = session.machine.uarch
        facts = {"uarch": uarch.name, "vendor": "simulated", "arch": uarch.arch}
        return Booted(boot, boot_id, build.build_id, begun, until, facts, self._told(values, cases))

    def _told(self, values: Array, cases: Sequence[int]) -> list[Values]:
        return [
            Values(
                f"bench-{case // CASES_EACH}",
                "1",
                f"case-{case % CASES_EACH}",
                "time" if self._levels.slower_is_more[case] else "rate",
                "all",
                tuple(values[case].tolist()),
                WARMUP,
            )
            for case in cases
        ]


def _case_index(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found is not None
    return int(found[1]) * CASES_EACH + int(found[2])
