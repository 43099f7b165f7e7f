"""The life of a boot inside its session, and when the session is over."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import (
    BooleanField,
    CharField,
    Count,
    Exists,
    ExpressionWrapper,
    IntegerField,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.db.models.functions import JSONObject

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.core.rows.prepared import Given, Prepared
from server.lab.attempts.ends import end_session
from server.lab.attempts.life import is_wanted
from server.lab.hosts.health import judge_health
from server.lab.hosts.probes import (
    TRUSTED_BOOT,
    keep_facts_of_machine,
    note_change,
    note_probe,
    parts_of_facts,
    sha256_of_facts,
    shared_facts,
)
from server.lab.hosts.state import change_health, is_tried
from server.lab.models import (
    LATE,
    Attempt,
    Boot,
    BootStart,
    BootState,
    Conditions,
    CoreType,
    Facts,
    Machine,
    Session,
    SessionState,
)

# Failed boots of one arm after which the session ends, if none was measured or they are too many of those planned: the
# kernel does not work on this machine. Of four boots two are too many, of sixteen two may happen.
MAX_FAILED_BOOTS = 2
_TOO_MANY_FAIL = 0.25
# Fewer measured boots of one arm give no spread, so no verdict.
MIN_MEASURED_BOOTS = 2
# big.LITTLE has two or three kinds of cores. Pages show all of them, and cases are measured on each.
_MOST_CORE_TYPES = 16
_LONGEST_CORE_TYPE = 60
# What is kept of the list of its CPUs, which is for people.
_LONGEST_CPUS = 4096
# Boot by boot nobody needs to know it more exactly.
_SEEN_JUST_NOW = timedelta(minutes=1)
# Times that a boot is planned again. What fails so often for reasons of ours is given up with its attempts.
_MOST_RETRIES = 50
_OPEN = frozenset({BootState.PLANNED, BootState.RUNNING})
# A note's texts, each with its longest length. Pages and answers read the notes of all boots of a session at once.
_TEXTS_OF_NOTE = {"benchmark": 60, "case": 60, "core_type": 60, "outcome": 60, "reason": 500, "evidence": 4096}
_VALUES_OF_NOTE = 20
# Of one boot, in bytes of JSON: some thousand notes, of which the first ones show what their programs printed.
_MOST_NOTES, _MOST_EVIDENCE = 256 * 1024, 64 * 1024


@dataclass(frozen=True)
class BootReport:
    """What an agent says about one boot; the outcomes are listed in docs/agent-protocol.md."""

    outcome: str
    reason: str = ""
    boot_id: str = ""
    build_id: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    console_tail: str = ""
    notes: Sequence[Mapping[str, Any]] = ()
    conditions: Mapping[str, Any] = field(default_factory=dict)
    # Of the values that came with it.
    values_sha256: str = ""


@dataclass(frozen=True)
class ToldBoot:
    """A boot that a report is about, and what the report is checked against, read at once."""

    boot: Boot
    # Its kernel is believed what it says of the machine.
    is_trusted: bool
    # The reported boot id belongs to another boot.
    is_elsewhere: bool
    # Of the row with the reported facts, if there is one.
    facts_id: int | None
    # Other boots of the session have not ended.
    others_open: bool
    # Kinds of cores of the machine, by name.
    core_types: Mapping[str, CoreType]


def start_boot(*, attempt: Attempt, agent: str, position: int) -> bool:
    """An agent begins a boot; returns whether it should. Raises `superseded` if the attempt is not its own."""
    session = attempt.session
    if session is None or attempt.agent != agent or attempt.state != attempt.State.RUNNING:
        raise DomainError("superseded", f"{attempt.key} is not held by this agent")
    boot = _boot(session, position)
    if boot.state == BootState.PLANNED and boot.retries < _MOST_RETRIES:
        why = Because.CLAIMED(f"started by {attempt.key}")
        with transaction.atomic():
            if boot.advance(BootState.RUNNING, why, started_at=clock.now(), started_by=attempt.key):
                BootStart.objects.create(boot=boot, attempt=attempt)
    return boot.state == BootState.RUNNING and is_wanted(attempt)


def told_boot(session: Session, position: int, report: BootReport) -> ToldBoot:
    """One query. The caller holds the session locked."""
    alike, _own = parts_of_facts(report.facts)
    boot: Any = _TOLD.first(
        session=session.pk,
        machine=session.machine_id,
        position=position,
        boot_id=report.boot_id,
        sha256=sha256_of_facts(alike),
    )
    if boot is None:
        raise DomainError("not-found", f"session {session.pk} has no boot {position}")
    boot.session = session
    cores = {told["name"]: CoreType(machine=session.machine, **told) for told in boot.cores}
    return ToldBoot(
        boot,
        is_trusted=bool(boot.is_trusted),
        is_elsewhere=boot.is_elsewhere,
        facts_id=boot.told_facts,
        others_open=boot.others_open,
        core_types=cores,
    )


def _told() -> "QuerySet[Boot]":
    session, boot_id = Given("session", IntegerField()), Given("boot_id", CharField())
    elsewhere = Boot.objects.filter(boot_id=boot_id).exclude(boot_id="").exclude(pk=OuterRef("pk"))
    others = Boot.objects.filter(session=session).exclude(pk=OuterRef("pk"))
    facts = Facts.objects.filter(sha256=Given("sha256", CharField())).values("pk")
    core_types = CoreType.objects.filter(machine=Given("machine", IntegerField())).order_by("name")
    return (
        Boot.objects.filter(session=session, position=Given("position", IntegerField()))
        .order_by()
        .defer("notes")
        .annotate(
            is_trusted=ExpressionWrapper(TRUSTED_BOOT, output_field=BooleanField()),
            is_elsewhere=Exists(elsewhere),
            others_open=Exists(others.filter(state__in=_OPEN)),
            told_facts=Subquery(facts),
            cores=ArraySubquery(core_types.values(json=JSONObject(id="pk", name="name", cpus="cpus"))),
        )
    )


_TOLD = Prepared(_told)


def close_boot(told: ToldBoot, *, report: BootReport, key: str) -> Boot | None:
    """Give a boot its result, brought by attempt `key`; None if there is nothing to store any more.

    Trouble of ours (`infrastructure`) is no result: the boot is planned again, and the session gives up when too many
    attempts bring nothing. Runs in the caller's transaction, which locks the session.
    What was measured and comes when the session has ended without it is kept, as LATE, and judged by nobody.
    Raises `conflict` for a result that is there already, and comes again with other values.
    """
    boot = told.boot
    if boot.state in {BootState.MEASURED, BootState.FAILED}:
        _check_same(boot, report)
        return boot if _keep_late(told, report, key) else None
    outcome, reason = _checked_outcome(told, report)
    if outcome == "infrastructure":
        if boot.state != BootState.RUNNING or boot.started_by != key:
            return None
        # One boot may be told so many times: its history keeps the beginning of each.
        ours = Because.INFRASTRUCTURE(f"infrastructure: {reason[:500]}")
        won = boot.advance(BootState.PLANNED, ours, retries=boot.retries + 1)
        return boot if won else None
    began, ended = _span(boot, report, key)
    alike, own = parts_of_facts(report.facts)
    won = boot.advance(
        BootState.MEASURED if outcome == "measured" else BootState.FAILED,
        Reason(Because.MEASURED, reason) if outcome == "measured" else Because.BOOT_FAILED(f"{outcome}: {reason}"),
        outcome=outcome,
        boot_id=report.boot_id if outcome == "measured" else "",
        build_id=report.build_id,
        started_at=began,
        ended_at=ended,
        facts_id=(told.facts_id or shared_facts(alike).pk) if alike else None,
        values_sha256=report.values_sha256,
        notes=_kept_notes(report.notes),
    )
    if not won:
        where = f"boot {boot.position} of session {boot.session_id}"
        raise DomainError("busy", f"{where} moved meanwhile", permanent=False)
    _keep_conditions(boot, report, facts=own)
    return boot


def _check_same(boot: Boot, report: BootReport) -> None:
    """A running kernel has one result. Another boot's at this position, which came too late, is none of ours."""
    same = boot.values_sha256 in {"", report.values_sha256}
    if report.boot_id and report.boot_id == boot.boot_id and not same:
        message = f"boot {boot.position} of session {boot.session_id} has a result of this boot_id with other values"
        raise DomainError("conflict", message)


def _keep_conditions(boot: Boot, report: BootReport, **facts: dict[str, Any]) -> None:
    told = {"document": dict(report.conditions), "console_tail": report.console_tail, **facts}
    Conditions.objects.bulk_create(
        [Conditions(boot=boot, **told)], update_conflicts=True, unique_fields=["boot"], update_fields=list(told)
    )


def _keep_late(told: ToldBoot, report: BootReport, key: str) -> bool:
    """Whether it measured and was ended before its result came. It stays failed: what was judged stays as it is.

    Its facts and notes are not kept, as those of all boots of a session are part of what is judged.
    """
    boot = told.boot
    if boot.state != BootState.FAILED or boot.outcome or not boot.started_by:
        return False
    if _checked_outcome(told, report)[0] != "measured":
        return False
    _keep_conditions(boot, report)
    proof = {"boot_id": report.boot_id, "build_id": report.build_id, "values_sha256": report.values_sha256}
    began, ended = _span(boot, report, key)
    told_late = Because.LATE("measured, told after its session had ended: not judged")
    return boot.note(told_late, outcome=LATE, started_at=began, ended_at=ended, **proof)


def _span(boot: Boot, report: BootReport, key: str) -> tuple[datetime, datetime]:
    """When it began and ended: as the machine says, within what the service saw where this attempt began it.

    A result that waited in a spool is of an earlier beginning than the last, which the service no longer knows.
    """
    now = clock.now()
    seen = boot.started_at if boot.started_by == key else None
    told = report.started_at or boot.started_at or now
    began = told if (seen is None or told >= seen) and told <= now else seen or now
    ended = report.ended_at or now
    return began, ended if began <= ended <= now else now


def _boot(session: Session, position: int) -> Boot:
    boot = session.boots.filter(position=position).select_related("session").first()
    if boot is None:
        raise DomainError("not-found", f"session {session.pk} has no boot {position}")
    return boot


def _kept_notes(notes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Flat notes of known fields, as far as there is room; a last one counts those for which there was none."""
    kept: list[dict[str, Any]] = []
    left, evidence, left_out = _MOST_NOTES, _MOST_EVIDENCE, 0
    for note in notes:
        told = _flat_note(note)
        evidence -= len(told.get("evidence", ""))
        if evidence < 0:
            told.pop("evidence", None)
        size = len(json.dumps(told))
        if left_out or size > left:
            left_out += 1
            continue
        left -= size
        kept.append(told)
    if left_out:
        kept.append({"case": "others", "outcome": "left-out", "reason": f"{left_out} more notes are not kept"})
    return kept


def _flat_note(note: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        name: str(note[name])[:longest]
        for name, longest in _TEXTS_OF_NOTE.items()
        if isinstance(note.get(name), str | int | float)
    }
    values = note.get("values")
    if isinstance(values, list):
        told["values"] = [value for value in values[:_VALUES_OF_NOTE] if isinstance(value, str | int | float)]
    return told


def _checked_outcome(told: ToldBoot, report: BootReport) -> tuple[str, str]:
    """The agent's outcome, unless the proof it brings says otherwise."""
    if report.outcome != "measured":
        return report.outcome, report.reason
    boot, session = told.boot, told.boot.session
    expected = (session.base_build if boot.arm == Boot.Arm.BASE else session.patched_build).build_id
    if report.build_id != expected:
        return "wrong-kernel", f"build id {report.build_id or 'missing'} ran, {expected} was planned"
    if not report.boot_id:
        return "no-proof", "the running kernel's boot_id is missing"
    if told.is_elsewhere:
        return "no-proof", f"boot_id {report.boot_id} belongs to another boot: the machine did not boot again"
    return "measured", report.reason


def note_machine(*, machine: Machine, facts: Mapping[str, Any], trace: str, measured: bool = True) -> None:
    """Keep what the booted system showed, and note in its history that it is not what it was in the boot before.

    A boot that was not `measured` may have shown only a part.

    A machine that is not what it is registered as is quarantined.
    """
    note_change(machine=machine, facts=facts, trace=trace)
    note_probe(machine, facts, trace=trace, measured=measured)
    if facts:
        keep_facts_of_machine(machine, facts)
    now, last = clock.now(), machine.last_seen_at
    if last is None or machine.health != Machine.Health.GOOD or not timedelta(0) <= now - last < _SEEN_JUST_NOW:
        machine.last_seen_at = now
        machine.save(update_fields=["last_seen_at"])
    seen = facts.get("uarch")
    if seen and seen != machine.uarch.name:
        reason = f"registered as {machine.uarch.name}, but its CPU is {seen}"
        change_health(machine, Machine.Health.QUARANTINED, reason)


def keep_core_types(
    known: Mapping[str, CoreType], *, machine: Machine, facts: Mapping[str, Any]
) -> Mapping[str, CoreType]:
    """Keep the kinds of cores that a measured boot showed, before its values are stored under their names; returns
    all by name. `known` are those that are there.

    A machine has few, however many names its agent makes up: beyond that they take the places of those under which
    nothing was measured, or are not kept, and their values are refused.
    """
    told = facts.get("core_types") or [{"name": "all", "cpus": ""}]
    wanted = {str(one["name"])[:_LONGEST_CORE_TYPE]: str(one.get("cpus", "")) for one in told[:_MOST_CORE_TYPES]}
    known = dict(known)
    new = [name for name in wanted if name not in known]
    if len(known) + len(new) > _MOST_CORE_TYPES:
        _unused_core_types(machine).exclude(name__in=wanted).delete()
        known = {row.name: row for row in machine.core_types.all()}
    for name, cpus in wanted.items():
        shown = cpus if len(cpus) <= _LONGEST_CPUS else f"{cpus[: _LONGEST_CPUS - 2]} …"
        row = known.get(name)
        if row is None and len(known) < _MOST_CORE_TYPES:
            # A result that waited in a spool may bring it at the same moment.
            known[name] = CoreType.objects.get_or_create(machine=machine, name=name, defaults={"cpus": shown})[0]
        elif row is not None and row.cpus != shown:
            row.cpus = shown
            row.save(update_fields=["cpus"])
    return known


def _unused_core_types(machine: Machine) -> QuerySet[CoreType]:
    """Those that no row names: measurements, and what was made of them."""
    unused = CoreType.objects.filter(machine=machine)
    for relation in CoreType._meta.related_objects:
        naming = relation.related_model._default_manager.filter(**{relation.field.name: OuterRef("pk")})
        unused = unused.exclude(Exists(naming))
    return unused


def finish_session(*, session: Session, goes_on: bool = False) -> None:
    """End the session when nothing is left to boot, or when one of its kernels does not work on this machine.

    `goes_on`: its boots speak against neither, so that they need not be counted.
    """
    if session.state in Session.FINAL:
        return
    machine = session.machine
    # A health session goes to quarantined machines on purpose, as one of equal kernels does where it is to tell.
    goes_there = session.purpose == Session.Purpose.HEALTH or is_tried(machine, session.trial)
    if machine.health == Machine.Health.QUARANTINED and not goes_there:
        why = Because.QUARANTINED(f"machine quarantined: {machine.health_reason}")
        end_session(session, SessionState.FAILED, why, keep=False)
        return
    if goes_on:
        return
    counts = _counts(session)
    for arm in Boot.Arm:
        failed = counts.get((arm, BootState.FAILED), 0)
        planned = sum(number for (of, _state), number in counts.items() if of == arm)
        none = not counts.get((arm, BootState.MEASURED))
        if failed >= MAX_FAILED_BOOTS and (none or failed > _TOO_MANY_FAIL * planned):
            last = session.boots.filter(arm=arm, state=BootState.FAILED).order_by("-position").first()
            reason = f"{arm} kernel gave no measurement in {failed} boots, last: {last and last.reason}"
            end_session(session, SessionState.FAILED, Because.KERNEL_FAILS(reason), keep=False)
            return
    if any(state in _OPEN for _arm, state in counts):
        return
    measured = {arm: counts.get((arm, BootState.MEASURED), 0) for arm in Boot.Arm}
    if min(measured.values()) < MIN_MEASURED_BOOTS:
        told = ", ".join(f"{count} of the {arm} kernel" for arm, count in measured.items())
        end_session(session, SessionState.FAILED, Because.TOO_FEW_BOOTS(f"too few measured boots: {told}"))
    elif session.advance(SessionState.DONE, Because.ALL_BOOTED()):
        judge_health(session)


def _counts(session: Session) -> dict[tuple[str, str], int]:
    """How many boots of each arm are in each state."""
    groups = session.boots.order_by().values_list("arm", "state").annotate(number=Count("pk"))
    return {(arm, state): number for arm, state, number in groups}
