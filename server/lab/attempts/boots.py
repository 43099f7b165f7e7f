"""The life of a boot inside its session, and when the session is over."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.lab.attempts.ends import end_session
from server.lab.attempts.life import is_wanted
from server.lab.hosts.health import judge_health
from server.lab.hosts.probes import keep_facts, keep_facts_of_machine, note_change, note_probe
from server.lab.hosts.state import change_health, is_tried
from server.lab.models import (
    LATE,
    Attempt,
    Boot,
    BootStart,
    BootState,
    Conditions,
    CoreType,
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
# Times that a boot is planned again. What fails so often for reasons of ours is given up with its attempts.
_MOST_RETRIES = 50
_OPEN = Q(state__in=[BootState.PLANNED, BootState.RUNNING])
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


def close_boot(*, session: Session, position: int, report: BootReport, key: str) -> Boot | None:
    """Give a boot its result, brought by attempt `key`; None if there is nothing to store any more.

    Trouble of ours (`infrastructure`) is no result: the boot is planned again, and the session gives up when too many
    attempts bring nothing. Runs in the caller's transaction, which locks the session.
    What was measured and comes when the session has ended without it is kept, as LATE, and judged by nobody.
    """
    boot = _boot(session, position)
    if boot.state in {BootState.MEASURED, BootState.FAILED}:
        return boot if _keep_late(boot, report, key) else None
    outcome, reason = _checked_outcome(boot, report)
    if outcome == "infrastructure":
        if boot.state != BootState.RUNNING or boot.started_by != key:
            return None
        # One boot may be told so many times: its history keeps the beginning of each.
        ours = Because.INFRASTRUCTURE(f"infrastructure: {reason[:500]}")
        won = boot.advance(BootState.PLANNED, ours, retries=boot.retries + 1)
        return boot if won else None
    began, ended = _span(boot, report, key)
    won = boot.advance(
        BootState.MEASURED if outcome == "measured" else BootState.FAILED,
        Reason(Because.MEASURED, reason) if outcome == "measured" else Because.BOOT_FAILED(f"{outcome}: {reason}"),
        outcome=outcome,
        boot_id=report.boot_id if outcome == "measured" else "",
        build_id=report.build_id,
        started_at=began,
        ended_at=ended,
        notes=_kept_notes(report.notes),
    )
    if not won:
        raise DomainError("busy", f"boot {position} of session {session.pk} moved meanwhile", permanent=False)
    told = {"document": dict(report.conditions), "console_tail": report.console_tail}
    Conditions.objects.update_or_create(boot=boot, defaults=told)
    keep_facts(boot, report.facts)
    return boot


def _keep_late(boot: Boot, report: BootReport, key: str) -> bool:
    """Whether it measured and was ended before its result came. It stays failed: what was judged stays as it is.

    Its facts and notes are not kept, as those of all boots of a session are part of what is judged.
    """
    if boot.state != BootState.FAILED or boot.outcome or not boot.started_by:
        return False
    if _checked_outcome(boot, report)[0] != "measured":
        return False
    told = {"document": dict(report.conditions), "console_tail": report.console_tail}
    Conditions.objects.update_or_create(boot=boot, defaults=told)
    proof = {"boot_id": report.boot_id, "build_id": report.build_id}
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


def _checked_outcome(boot: Boot, report: BootReport) -> tuple[str, str]:
    """The agent's outcome, unless the proof it brings says otherwise."""
    if report.outcome != "measured":
        return report.outcome, report.reason
    session = boot.session
    expected = (session.base_build if boot.arm == Boot.Arm.BASE else session.patched_build).build_id
    if report.build_id != expected:
        return "wrong-kernel", f"build id {report.build_id or 'missing'} ran, {expected} was planned"
    if not report.boot_id:
        return "no-proof", "the running kernel's boot_id is missing"
    if Boot.objects.filter(boot_id=report.boot_id).exclude(pk=boot.pk).exists():
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
    machine.last_seen_at = clock.now()
    machine.save(update_fields=["last_seen_at"])
    seen = facts.get("uarch")
    if seen and seen != machine.uarch.name:
        reason = f"registered as {machine.uarch.name}, but its CPU is {seen}"
        change_health(machine, Machine.Health.QUARANTINED, reason)


def keep_core_types(*, machine: Machine, facts: Mapping[str, Any]) -> None:
    """Keep the kinds of cores that a measured boot showed, before its values are stored under their names.

    A machine has few, however many names its agent makes up: beyond that they take the places of those under which
    nothing was measured, or are not kept, and their values are refused.
    """
    told = facts.get("core_types") or [{"name": "all", "cpus": ""}]
    wanted = {str(one["name"])[:_LONGEST_CORE_TYPE]: str(one.get("cpus", "")) for one in told[:_MOST_CORE_TYPES]}
    known = {row.name: row for row in machine.core_types.all()}
    new = [name for name in wanted if name not in known]
    if len(known) + len(new) > _MOST_CORE_TYPES:
        _unused_core_types(machine).exclude(name__in=wanted).delete()
        known = {row.name: row for row in machine.core_types.all()}
    for name, cpus in wanted.items():
        shown = cpus if len(cpus) <= _LONGEST_CPUS else f"{cpus[: _LONGEST_CPUS - 2]} …"
        row = known.get(name)
        if row is None and len(known) < _MOST_CORE_TYPES:
            known[name] = CoreType.objects.create(machine=machine, name=name, cpus=shown)
        elif row is not None and row.cpus != shown:
            row.cpus = shown
            row.save(update_fields=["cpus"])


def _unused_core_types(machine: Machine) -> QuerySet[CoreType]:
    """Those that no row names: measurements, and what was made of them."""
    unused = CoreType.objects.filter(machine=machine)
    for relation in CoreType._meta.related_objects:
        naming = relation.related_model._default_manager.filter(**{relation.field.name: OuterRef("pk")})
        unused = unused.exclude(Exists(naming))
    return unused


def finish_session(*, session: Session) -> None:
    """End the session when nothing is left to boot, or when one of its kernels does not work on this machine."""
    if session.state in Session.FINAL:
        return
    machine = session.machine
    # A health session goes to quarantined machines on purpose, as one of equal kernels does where it is to tell.
    goes_there = session.purpose == Session.Purpose.HEALTH or is_tried(machine, session.trial)
    if machine.health == Machine.Health.QUARANTINED and not goes_there:
        why = Because.QUARANTINED(f"machine quarantined: {machine.health_reason}")
        end_session(session, SessionState.FAILED, why, keep=False)
        return
    for arm in Boot.Arm:
        boots = session.boots.filter(arm=arm)
        failed, planned = boots.filter(state=BootState.FAILED), boots.count()
        none = not boots.filter(state=BootState.MEASURED).exists()
        if failed.count() >= MAX_FAILED_BOOTS and (none or failed.count() > _TOO_MANY_FAIL * planned):
            last = failed.order_by("-position").first()
            reason = f"{arm} kernel gave no measurement in {failed.count()} boots, last: {last and last.reason}"
            end_session(session, SessionState.FAILED, Because.KERNEL_FAILS(reason), keep=False)
            return
    if session.boots.filter(_OPEN).exists():
        return
    measured = {arm: session.boots.filter(arm=arm, state=BootState.MEASURED).count() for arm in Boot.Arm}
    if min(measured.values()) < MIN_MEASURED_BOOTS:
        counts = ", ".join(f"{count} of the {arm} kernel" for arm, count in measured.items())
        end_session(session, SessionState.FAILED, Because.TOO_FEW_BOOTS(f"too few measured boots: {counts}"))
    elif session.advance(SessionState.DONE, Because.ALL_BOOTED()):
        judge_health(session)
