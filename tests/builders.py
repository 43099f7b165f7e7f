"""Typed builders of rows for tests: each makes what it needs and nothing more."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from server.builds.models import Artifact, Build, KernelConfig, Toolchain
from server.builds.wanted import recipe_of
from server.core.reasons import Because, Reason
from server.core.states import record_creations
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.lab.hosts.probes import parts_of_facts, shared_facts
from server.lab.models import (
    Attempt,
    Boot,
    Builder,
    Conditions,
    CoreType,
    Machine,
    Microarchitecture,
    PowerCycle,
    Session,
    Trial,
)
from server.lab.work import boot_order
from server.results.models import PLACES, Benchmark, BenchmarkVersion, Case, Measurement, Metric, PackedValues
from server.sources.models import MailingList, Message, Patch, Revision, Series, Tree

_serial = itertools.count(1)
EPOCH = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def fake_sha(seed: int) -> str:
    return f"{seed:040x}"


def build_tree(name: str = "stable", **fields: Any) -> Tree:
    fields.setdefault("url", "file:///nowhere.git")
    return Tree.objects.get_or_create(name=name, defaults=fields)[0]


def build_revision(tree: Tree | None = None, parent: Revision | None = None, **fields: Any) -> Revision:
    revision = new_revision(tree or build_tree(), parent, **fields)
    revision.save(force_insert=True)
    return revision


def new_revision(tree: Tree, parent: Revision | None = None, **fields: Any) -> Revision:
    """Not stored yet."""
    n = next(_serial)
    fields.setdefault("sha", fake_sha(n))
    fields.setdefault("tree_sha", fake_sha(n + 10**6))
    fields.setdefault("subject", f"mm: Change {n}")
    fields.setdefault("author", "Ada Author <ada@example.org>")
    fields.setdefault("committed_at", EPOCH + timedelta(minutes=n))
    fields.setdefault("foreign", False)
    return Revision(tree=tree, parent=parent, **fields)


def build_list(name: str = "linux-mm", **fields: Any) -> MailingList:
    fields.setdefault("url", "http://127.0.0.1:1/linux-mm")
    fields.setdefault("address", "linux-mm@example.org")
    if "tree" not in fields:
        fields["tree"] = build_tree()
    return MailingList.objects.get_or_create(name=name, defaults=fields)[0]


def build_message(mailing_list: MailingList | None = None, **fields: Any) -> Message:
    n = next(_serial)
    fields.setdefault("message_id", f"message-{n}@example.org")
    fields.setdefault("blob", fake_sha(n))
    fields.setdefault("subject", f"[PATCH] mm: Change {n}")
    fields.setdefault("sender_name", "Ada Author")
    fields.setdefault("sender_address", "ada@example.org")
    fields.setdefault("sent_at", EPOCH)
    fields.setdefault("kind", Message.Kind.PATCH)
    message_id = fields["message_id"]
    raw = f"From: Ada Author <ada@example.org>\nTo: linux-mm@example.org\nMessage-ID: <{message_id}>\n\nbody\n"
    fields.setdefault("raw", raw.encode())
    return Message.objects.create(mailing_list=mailing_list or build_list(), **fields)


def build_series(
    mailing_list: MailingList | None = None, *, state: str = Series.State.APPLIED, **fields: Any
) -> Series:
    """A series of a cover letter and two patches; applied to a base of its own unless told otherwise."""
    mailing_list = mailing_list or build_list()
    cover = build_message(mailing_list, kind=Message.Kind.COVER, subject="[PATCH 0/2] mm: Clear pages twice")
    fields.setdefault("cover", cover)
    fields.setdefault("root_message_id", cover.message_id)
    fields.setdefault("subject", "mm: Clear pages twice")
    fields.setdefault("author_name", "Ada Author")
    fields.setdefault("author_address", "ada@example.org")
    fields.setdefault("total", 2)
    fields.setdefault("submitted_at", EPOCH)
    if state == Series.State.HELD:
        fields.setdefault("checked_at", EPOCH)
    if state == Series.State.APPLIED and "base" not in fields:
        fields["base"] = build_revision(mailing_list.tree)
        fields["head"] = build_revision(mailing_list.tree, fields["base"], foreign=True)
    series = Series.objects.create(mailing_list=mailing_list, state=state, **fields).record_creation()
    for index in range(1, series.total + 1):
        message = build_message(mailing_list, in_reply_to=cover.message_id)
        Patch.objects.create(series=series, index=index, message=message, subject=message.subject)
    return series


def build_config(name: str = "lean-x86-64", **fields: Any) -> KernelConfig:
    fields.setdefault("arch", "x86_64")
    fields.setdefault("fragment", "CONFIG_64BIT=y\n")
    return KernelConfig.objects.get_or_create(name=name, defaults=fields)[0]


def build_toolchain(name: str = "gcc") -> Toolchain:
    return Toolchain.objects.get_or_create(name=name, defaults={"compiler": "gcc"})[0]


def build_build(revision: Revision | None = None, *, state: str = Build.State.BUILT, **fields: Any) -> Build:
    build = new_build(revision or build_revision(), state=state, **fields)
    build.save(force_insert=True)
    build.record_creation()
    if state == Build.State.BUILT:
        new_image(build).save(force_insert=True)
    return build


def new_build(revision: Revision, *, state: str = Build.State.BUILT, **fields: Any) -> Build:
    """Not stored yet."""
    fields.setdefault("build_id", fake_sha(next(_serial)) if state == Build.State.BUILT else "")
    for name, of_most in (("config", build_config), ("toolchain", build_toolchain)):
        if name not in fields:
            fields[name] = of_most()
    if "recipe" not in fields:
        fields["recipe"] = recipe_of(fields["config"], fields["toolchain"])
    return Build(revision=revision, tree_sha=revision.tree_sha, arch="x86_64", state=state, **fields)


def new_image(build: Build) -> Artifact:
    """That of the build, not stored yet."""
    return Artifact(build=build, kind=Artifact.Kind.IMAGE, sha256=f"{next(_serial):064x}", size=2_000_000)


def build_uarch(name: str = "haswell") -> Microarchitecture:
    return Microarchitecture.objects.get_or_create(name=name, defaults={"arch": "x86_64", "title": name.title()})[0]


def build_machine(name: str = "vm-haswell", uarch: str = "haswell", **fields: Any) -> Machine:
    """A physical machine unless `virtual=True` is given; with one core type, "all"."""
    machine = Machine.objects.filter(name=name).first()
    if machine is None:
        fields.setdefault("config", build_config())
        fields.setdefault("toolchain", build_toolchain())
        machine = Machine.objects.create(name=name, uarch=build_uarch(uarch), **fields)
        CoreType.objects.create(machine=machine, name="all", cpus="0")
    return machine


def build_session(
    series: Series | None = None,
    machine: Machine | None = None,
    *,
    state: str = Session.State.PLANNED,
    boots_per_side: int = 2,
    **fields: Any,
) -> Session:
    """A session of the series' trial with its boots in A B B A order, all planned, or all measured when it is done."""
    series = series or build_series()
    machine = machine or build_machine()
    assert series.base is not None
    assert series.head is not None
    if "base_build" not in fields:
        fields["base_build"] = Build.objects.filter(revision=series.base).first() or build_build(series.base)
    if "patched_build" not in fields:
        fields["patched_build"] = Build.objects.filter(revision=series.head).first() or build_build(series.head)
    fields.setdefault("looks", [boots_per_side])
    if "trial" not in fields:
        fields["trial"] = series_trial(series, looks=fields["looks"])
    session = Session.objects.create(
        series=series, machine=machine, state=state, trace=series.trace, **fields
    ).record_creation()
    arms = [Boot.Arm.BASE, Boot.Arm.PATCHED, Boot.Arm.PATCHED, Boot.Arm.BASE] * boots_per_side
    build_boots(session, arms[: 2 * boots_per_side], measured=state == Session.State.DONE)
    return session


def build_trial(
    base: Revision | None = None,
    patched: Revision | None = None,
    *,
    purpose: str = Trial.Purpose.HEAD,
    state: str = Trial.State.WANTED,
    machines: Iterable[Machine] = (),
    **fields: Any,
) -> Trial:
    """A trial of two revisions of one tree, or of its series' base and head; without sessions."""
    series = fields.get("series")
    base = base or (series.base if series else build_revision())
    patched = patched or (series.head if series else build_revision(base.tree, base))
    fields.setdefault("key", f"test:{next(_serial)}")
    fields.setdefault("looks", [4])
    trial = Trial.objects.create(purpose=purpose, base=base, patched=patched, state=state, **fields).record_creation()
    trial.machines.set(machines)
    return trial


def series_trial(series: Series, *, looks: Sequence[int] = (4,)) -> Trial:
    """The one trial of what the series costs, made now if it has none: being measured, on all machines."""
    trial = Trial.objects.filter(series=series, purpose=Trial.Purpose.SERIES).first()
    return trial or build_trial(
        purpose=Trial.Purpose.SERIES,
        state=Trial.State.MEASURING,
        series=series,
        key=f"series:{series.pk}",
        looks=list(looks),
        trace=series.trace,
    )


def build_trial_session(
    trial: Trial, machine: Machine | None = None, *, state: str = Session.State.PLANNED, **fields: Any
) -> Session:
    """A session of the trial with the boots of its first look, all measured when it is done."""
    of_series = trial.purpose == Trial.Purpose.SERIES
    fields.setdefault("looks", list(trial.looks))
    for arm, revision in (("base_build", trial.base), ("patched_build", trial.patched)):
        if arm not in fields:
            fields[arm] = Build.objects.filter(tree_sha=revision.tree_sha).first() or build_build(revision)
    session = Session.objects.create(
        purpose=Session.Purpose.SERIES if of_series else Session.Purpose.TRIAL,
        series=trial.series if of_series else None,
        trial=trial,
        machine=machine or build_machine(),
        state=state,
        trace=trial.trace,
        **fields,
    ).record_creation()
    build_boots(session, boot_order(session.looks[0]), measured=state == Session.State.DONE)
    return session


def build_health_session(machine: Machine, *, state: str = Session.State.PLANNED, **fields: Any) -> Session:
    """A session that checks its machine: one kernel on both sides, for no series."""
    kernel = build_build()
    session = Session.objects.create(
        purpose=Session.Purpose.HEALTH,
        machine=machine,
        state=state,
        base_build=kernel,
        patched_build=kernel,
        **fields,
    ).record_creation()
    arms = [Boot.Arm.BASE, Boot.Arm.PATCHED, Boot.Arm.PATCHED, Boot.Arm.BASE]
    build_boots(session, arms, measured=state == Session.State.DONE)
    return session


def build_builder(name: str = "builder-1", **fields: Any) -> Builder:
    fields.setdefault("arches", ["x86_64"])
    return Builder.objects.get_or_create(name=name, defaults=fields)[0]


def build_power_cycle(machine: Machine, *, state: str = PowerCycle.State.WANTED, **fields: Any) -> PowerCycle:
    fields.setdefault("reason", "it did not come back from a session")
    return PowerCycle.objects.create(machine=machine, state=state, **fields).record_creation()


def build_attempt(work: Build | Session | PowerCycle, *, state: str = Attempt.State.RUNNING, **fields: Any) -> Attempt:
    """The next attempt at this work, on its machine if it has one."""
    kind = {Build: "build", Session: "session", PowerCycle: "power-cycle"}[type(work)]
    number = work.attempts.count() + 1
    if isinstance(work, Session):
        fields.setdefault("machine", work.machine)
    fields.setdefault("adapter", "local")
    fields[kind.replace("-", "_")] = work
    return Attempt.objects.create(
        key=f"{kind}-{work.pk}-{number}", number=number, slots=1, state=state, trace=work.trace, **fields
    ).record_creation()


def build_boot(session: Session, position: int, arm: str, *, measured: bool = False) -> Boot:
    boot = new_boot(session, position, arm, measured=measured)
    boot.save(force_insert=True)
    return boot.record_creation()


def build_boots(session: Session, arms: Sequence[str], *, measured: bool = False) -> None:
    """One boot of each arm, in this order: all in two queries, for most rows of most tests are boots."""
    boots = [new_boot(session, position, arm, measured=measured) for position, arm in enumerate(arms)]
    record_creations(Boot.objects.bulk_create(boots))


def new_boot(session: Session, position: int, arm: str, *, measured: bool) -> Boot:
    """Not stored yet."""
    build = session.base_build if arm == Boot.Arm.BASE else session.patched_build
    proof: dict[str, Any] = {}
    if measured:
        n = next(_serial)
        proof = {
            "boot_id": f"{n:08x}-0000-4000-8000-{n:012x}",
            "build_id": build.build_id,
            "started_at": EPOCH + timedelta(minutes=position),
            "ended_at": EPOCH + timedelta(minutes=position, seconds=30),
        }
    return Boot(
        session=session,
        position=position,
        arm=arm,
        state=Boot.State.MEASURED if measured else Boot.State.PLANNED,
        trace=session.trace,
        **proof,
    )


def tell_boots(
    boots: Collection[Boot], *, facts: Any = None, conditions: dict[str, Any] | None = None, console: str | None = None
) -> None:
    """What an agent would have told of these boots, in place of what they have; facts of boots are those of a probe."""
    given: dict[str, Any] = {"document": conditions, "console_tail": console}
    rows = Boot.objects.filter(pk__in=[boot.pk for boot in boots])
    if facts is not None:
        alike, given["facts"] = parts_of_facts(facts)
        rows.update(facts=shared_facts(alike) if alike else None)
    given = {name: value for name, value in given.items() if value is not None}
    told = Conditions.objects.filter(boot__in=rows)
    known = set(told.values_list("boot_id", flat=True))
    if given:
        told.update(**given)
    Conditions.objects.bulk_create(Conditions(boot=boot, **given) for boot in boots if boot.pk not in known)


def because(sentence: str) -> Reason:
    """A reason of which only the sentence matters."""
    return Because.BY_PERSON(sentence)


def build_case(name: str = "fault-4k", benchmark: str = "mm-basic", **fields: Any) -> Case:
    fields.setdefault("runs", 6)
    fields.setdefault("warmup", 1)
    fields.setdefault("title", name)
    row = Benchmark.objects.get_or_create(name=benchmark, defaults={"title": benchmark, "version": "1"})[0]
    return Case.objects.get_or_create(benchmark=row, name=name, defaults=fields)[0]


def build_metric(name: str = "time", benchmark: str = "mm-basic", *, better: str = "lower", **fields: Any) -> Metric:
    row = Benchmark.objects.get_or_create(name=benchmark, defaults={"title": benchmark, "version": "1"})[0]
    fields.setdefault("title", name)
    fields.setdefault("unit", "ns")
    return Metric.objects.get_or_create(benchmark=row, name=name, defaults={"better": better, **fields})[0]


def build_version(case: Case, version: str = "") -> BenchmarkVersion:
    """Of the case's benchmark; the one that it has now."""
    benchmark = case.benchmark
    return BenchmarkVersion.objects.get_or_create(benchmark=benchmark, hash=version or benchmark.version)[0]


def build_measurement(
    boot: Boot, values: list[float], case: Case | None = None, metric: Metric | None = None
) -> Measurement:
    """`values` in order, warm-up (as many as the case says) first."""
    case = case or build_case()
    core_type = boot.session.machine.core_types.get(name="all")
    same = {"metric": metric or build_metric(), "core_type": core_type, "version": build_version(case)}
    row = packed(case, values, case.warmup, boot=boot, **same)
    row.save()
    return Measurement.objects.get(pk=row.pk * PLACES + 1)


def build_measurements(
    session: Session, measured: Iterable[tuple[Boot, Case, Sequence[float]]], metric: Metric | None = None
) -> None:
    """As `build_measurement` of each, in one query for all: values of boots of this session, of one benchmark."""
    known = {"metric": metric or build_metric(), "core_type": session.machine.core_types.get(name="all")}
    versions: dict[int, BenchmarkVersion] = {}
    rows = []
    for boot, case, values in measured:
        version = versions.get(case.benchmark_id) or versions.setdefault(case.benchmark_id, build_version(case))
        rows.append(packed(case, values, case.warmup, boot=boot, version=version, **known))
    PackedValues.objects.bulk_create(rows)


def packed(case: Case, values: Sequence[float], warmup: int, **fields: Any) -> PackedValues:
    """A row of one measurement, not stored yet."""
    number = len(values)
    return PackedValues(first_case=case.pk, cases=[case.pk], warmups=[warmup], ends=[number], values=values, **fields)


def forget(measured: QuerySet[Measurement]) -> None:
    """As if these had never been measured."""
    gone = set(measured.order_by().values_list("pk", flat=True))
    for row in PackedValues.objects.filter(pk__in={pk // PLACES for pk in gone}):
        left = Measurement.objects.filter(pk__range=(row.pk * PLACES, row.pk * PLACES + PLACES - 1)).exclude(
            pk__in=gone
        )
        same = {name: getattr(row, name) for name in ("boot", "metric", "core_type", "version")}
        kept = [packed(one.case, one.values, one.warmup, **same) for one in left]
        row.delete()
        PackedValues.objects.bulk_create(kept)


def build_comparison(session: Session, verdict: str = Verdict.UNCHANGED, **fields: Any) -> Comparison:
    """Base 1000 +- 5; patched as the verdict says for a metric whose lower values are better."""
    comparison = new_comparison(session, verdict, **fields)
    comparison.save(force_insert=True)
    return comparison


def new_comparison(session: Session, verdict: str, **fields: Any) -> Comparison:
    """Not stored yet."""
    ratio = {Verdict.REGRESSED: 1.71, Verdict.IMPROVED: 0.8}.get(Verdict(verdict), 1.001)
    for name, of_most in (("case", build_case), ("metric", build_metric)):
        if name not in fields:
            fields[name] = of_most()
    if "core_type" not in fields:
        fields["core_type"] = session.machine.core_types.get(name="all")
    numbers = {"base_mean": 1000.0, "base_sd": 5.0, "patched_mean": 1000.0 * ratio, "patched_sd": 6.0}
    interval = {"ratio": ratio, "ratio_low": ratio * 0.99, "ratio_high": ratio * 1.01}
    counts = {"base_boots": 4, "patched_boots": 4, "family_size": 1, "min_effect": 0.01, "mde": 0.012}
    given = numbers | interval | counts | fields
    return Comparison(session=session, verdict=verdict, **given)


def build_finding(series: Series, kind: str = Finding.Kind.REGRESSED, **fields: Any) -> Finding:
    """A finding with one verdict for each microarchitecture that the series' comparisons speak about."""
    fields.setdefault("headline", "Regressed on haswell (1.71x time of fault-4k).")
    fields.setdefault("virtual", False)
    if "trial" not in fields:
        fields["trial"] = series_trial(series)
    finding = Finding.objects.create(
        series=series, kind=kind, state=fields.pop("state", Finding.State.CONFIRMED), trace=series.trace, **fields
    ).record_creation()
    rows = Comparison.objects.filter(session__series=series).select_related("session__machine__uarch")
    for row in {row.session.machine.uarch_id: row for row in rows}.values():
        own = [one for one in rows if one.session.machine.uarch_id == row.session.machine.uarch_id]
        open_ = [one.mde for one in own if one.verdict == Verdict.INCONCLUSIVE]
        FindingVerdict.objects.create(
            finding=finding,
            uarch=row.session.machine.uarch,
            verdict=row.verdict,
            comparison=row,
            mde=row.mde,
            told=len(own) - len(open_),
            untold=len(open_),
            missed=max((mde for mde in open_ if mde is not None), default=None),
        )
    return finding
