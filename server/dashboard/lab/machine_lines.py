"""All machines, one line each: what it does and until when, or why it does nothing and what to do about that."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Sum

from server.core import clock
from server.core.reasons import Because
from server.core.rows.together import Row, read_together
from server.dashboard.lab.work_now import SessionNow, sessions_now
from server.dashboard.pictures.small import Night, NoiseCourse
from server.detection.models import MachineQuestion, NoiseProfile, Verdict
from server.detection.noise.profiles import wilson
from server.detection.trials.effects import equal_sessions, judged_in
from server.lab.hosts.probes import MachineKind, standing
from server.lab.hosts.probes import kind_of as hardware_of
from server.lab.models import Host, Machine, PowerCycle, Session
from server.lab.port import dispatcher
from server.lab.scheduling.decision import machine_trouble
from server.lab.scheduling.forecast import Forecast
from server.lab.scheduling.reader import known_machine, marks_of_sessions, waiting_sessions
from server.lab.scheduling.snapshot import Snapshot

# On a site where more of them are open, nobody answers any.
_MOST_QUESTIONS = 500
# In this order: what a person has to look at comes first.
SICK, BUSY, IDLE, GONE = "sick", "busy", "idle", "gone"
_ORDER: Final = (SICK, BUSY, IDLE, GONE)
_SICKEST: Final = ("quarantined", "offline", "to be checked", "in somebody's hands", "switched off")
_DOING: Final = {
    Host.State.RESERVED: "given work",
    Host.State.WORKING: "working",
    Host.State.RETURNING: "returning",
    Host.State.POWER_CYCLING: "being switched off and on",
}
_WORDS: Final = {Host.Health.QUARANTINED: "quarantined", Host.Health.MAINTENANCE: "in somebody's hands"}
_CALM: Final = ("in somebody's hands", "switched off", "to be checked")
_BY_HAND: Final = {
    "switched off": "A person switches it on again in the admin.",
    "in somebody's hands": "Whoever has it releases it on its page.",
}


@dataclass(frozen=True, slots=True)
class Quiet:
    """What it showed between equal kernels: false alarms among comparisons, at most `high` of them by chance."""

    comparisons: int
    false_alarms: int
    rejections: int
    high: float
    at: datetime


@dataclass(frozen=True, slots=True)
class MachineLine:
    """`word` is its state, `why` the reason for it, `advice` what a person can do; `since` is of that state.

    `questions` are those that nobody answered, as (kind, what was seen); `doubts` are whether it is virtual.
    """

    name: str
    uarch: str
    uarch_title: str
    virtual: bool
    clock: str
    kind: str
    word: str
    why: str
    advice: str
    since: datetime
    last_seen_at: datetime | None
    now: SessionNow | None
    waiting: int
    quiet: Quiet | None
    questions: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]

    @property
    def suspect(self) -> bool:
        """Whether its own page says that what it measures may be its own."""
        return bool(self.questions or self.doubts) and self.kind != GONE

    @property
    def tone(self) -> str:
        """What a person took out is no alarm."""
        return "held" if self.kind == SICK and self.word in _CALM else self.kind


@dataclass(frozen=True, slots=True)
class MachineLines:
    """Sick ones first, those that are retired last."""

    lines: tuple[MachineLine, ...]

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        found = Counter(line.kind for line in self.lines)
        return tuple((kind, found[kind]) for kind in _ORDER if found[kind])

    @property
    def suspect(self) -> int:
        return sum(line.suspect for line in self.lines)

    @property
    def measuring(self) -> int:
        return sum(line.now is not None for line in self.lines)

    @property
    def to_measure(self) -> int:
        return sum(line.waiting for line in self.lines)

    @property
    def here(self) -> tuple[MachineLine, ...]:
        return tuple(line for line in self.lines if line.kind != GONE)

    @property
    def gone(self) -> tuple[MachineLine, ...]:
        return tuple(line for line in self.lines if line.kind == GONE)


@dataclass(frozen=True, slots=True)
class _Lab:
    """What is asked once for all machines."""

    now: Mapping[int, SessionNow]
    waiting: Mapping[int, int]
    checks: frozenset[int]
    cycling: frozenset[int]
    reasons: Mapping[int, str]
    quiet: Mapping[int, Quiet]
    questions: Mapping[int, Sequence[tuple[str, str]]]


def with_cycling(machines: "QuerySet[Machine]") -> "QuerySet[Any, Any]":
    """Machines that know whether they are to be switched off and on."""
    opened = PowerCycle.objects.filter(machine=OuterRef("pk"), state__in=PowerCycle.OPEN)
    return machines.annotate(cycling=Exists(opened))


def machine_line(machine: Any, forecast: Forecast, counted: Sequence[Sequence[Row]]) -> MachineLine:
    """Of one that was read `with_cycling`, with the answers to `asked_of_lines` about it; one query."""
    reason = next((one.reason for one in forecast.waiting if one.host == machine.name), "")
    now = {one.machine: one for one in sessions_now(Q(machine=machine), forecast.pace)}
    return _line(machine, _lab([machine], now, counted, {machine.pk: reason}))


def machine_lines() -> MachineLines:
    """At most seven queries, however many machines."""
    machines = list(with_cycling(Machine.objects.select_related("uarch")))
    now = {one.machine: one for one in sessions_now()}
    counted = read_together(*asked_of_lines(Q()))
    lab = _lab(machines, now, counted, None)
    return MachineLines(tuple(sorted((_line(machine, lab) for machine in machines), key=_urgency)))


def _lab(
    machines: Sequence[Any],
    now: Mapping[int, SessionNow],
    counted: Sequence[Sequence[Row]],
    reasons: Mapping[int, str] | None,
) -> "_Lab":
    """`reasons` are those of what waits first, where they are known."""
    opened, profiles, asked = counted
    questions: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for machine, kind, detail in asked:
        questions[machine].append((kind, detail))
    waiting = {pk: planned for pk, planned, _ in opened}
    cycling = frozenset(machine.pk for machine in machines if machine.cycling)
    idle = [one for one in machines if waiting.get(one.pk) and kind_of(one, now) == IDLE]
    return _Lab(
        now=now,
        waiting=waiting,
        checks=frozenset(pk for pk, _, checks in opened if checks),
        cycling=cycling,
        questions=questions,
        reasons=_reasons(idle, cycling) if reasons is None else reasons,
        quiet={
            pk: Quiet(count, alarms, p, wilson(alarms, count)[1], at) for pk, count, alarms, p, at in profiles if count
        },
    )


def _urgency(line: MachineLine) -> tuple[int, int, bool, str, str]:
    worst = _SICKEST.index(line.word) if line.word in _SICKEST else len(_SICKEST)
    return _ORDER.index(line.kind), worst, not line.suspect, line.uarch, line.name


def asked_of_lines(where: Q) -> "tuple[QuerySet[Any, Any], ...]":
    """Of each machine: how many sessions wait for it and how many are to check it, what it shows of its noise, and the
    newest questions about it that nobody answered.
    """
    health = Q(purpose=Session.Purpose.HEALTH)
    planned_or_checks = Q(state=Session.State.PLANNED) | health
    rows = Session.objects.filter(where, planned_or_checks, state__in=Session.OPEN).order_by()
    counted = rows.values_list("machine").annotate(
        planned=Count("pk", filter=Q(state=Session.State.PLANNED)), checks=Count("pk", filter=health)
    )
    profiles = NoiseProfile.objects.filter(where).order_by().values_list("machine")
    noise = profiles.annotate(Sum("comparisons"), Sum("false_alarms"), Sum("rejections"), Max("last_at"))
    opened = MachineQuestion.objects.filter(where, state=MachineQuestion.State.OPEN).order_by("-id")
    return counted, noise, opened.values_list("machine", "kind", "detail")[:_MOST_QUESTIONS]


def _reasons(idle: Sequence[Machine], cycling: frozenset[int]) -> dict[int, str]:
    """Why nothing of what waits for these is under way there."""
    if not idle:
        return {}
    if dispatcher().slots == 0:
        return {machine.pk: f"the {dispatcher().name} dispatcher hands nothing out" for machine in idle}
    now = clock.now()
    known = {one.pk: known_machine(one, cycling=one.pk in cycling) for one in idle}
    marks = read_together(*marks_of_sessions(now))
    sessions = [one for one in waiting_sessions({}, marks) if one.machine in known]
    snapshot = Snapshot(now=now, machines=known)
    found: dict[int, str] = {}
    for session in sorted(sessions, key=lambda one: (-one.priority, one.since)):
        again = f"tried {session.fruitless} times in vain" if session.due > now else ""
        reason = again or machine_trouble(snapshot, session)
        if not reason or session.machine not in found:
            found[session.machine] = reason
    return found


def kind_of(machine: Machine, busy: Container[int]) -> str:
    """`busy` are those with a session."""
    if machine.health == Host.Health.RETIRED:
        return GONE
    if machine.health != Host.Health.GOOD or not machine.enabled or machine.state == Host.State.OFFLINE:
        return SICK
    return IDLE if machine.state == Host.State.IDLE and machine.pk not in busy else BUSY


def _line(machine: Machine, lab: _Lab) -> MachineLine:
    kind, doing = kind_of(machine, lab.now), lab.now.get(machine.pk)
    word, why, since = _words(machine, kind, doing)
    waiting = lab.waiting.get(machine.pk, 0)
    if kind == IDLE:
        why = _idle(waiting, lab.reasons.get(machine.pk, "")) if waiting else "nothing waits for it"
    return MachineLine(
        name=machine.name,
        uarch=machine.uarch.name,
        uarch_title=machine.uarch.title,
        virtual=machine.virtual,
        clock=machine.clock,
        kind=kind,
        word=word,
        why=why,
        advice=_advice(machine, word, lab) if kind == SICK else "",
        since=since,
        last_seen_at=machine.last_seen_at,
        now=doing,
        waiting=waiting,
        quiet=lab.quiet.get(machine.pk),
        questions=tuple(lab.questions.get(machine.pk, ())),
        doubts=standing(machine).doubts if hardware_of(machine) is MachineKind.UNKNOWN else (),
    )


def _idle(waiting: int, reason: str) -> str:
    many = f"{waiting} sessions wait" if waiting > 1 else "1 session waits"
    return f"{many}: {reason or 'the first goes with the next round'}"


def _words(machine: Machine, kind: str, doing: SessionNow | None) -> tuple[str, str, datetime]:
    """Its state, the reason for it, and since when."""
    if kind == SICK:
        return _sickness(machine)
    if kind == GONE:
        return "retired", machine.health_reason, machine.health_since
    if doing:
        return "measuring" if doing.begun else "given work", "", doing.since
    word = "idle" if kind == IDLE else _DOING.get(Host.State(machine.state), "working")
    return word, machine.state_reason, machine.state_since


def _sickness(machine: Machine) -> tuple[str, str, datetime]:
    offline = machine.state == Host.State.OFFLINE
    unreached = ": ".join(part for part in ("offline", machine.state_reason) if part)
    if not machine.enabled:
        return "switched off", "a person took it out of use", machine.state_since
    if offline and machine.health not in _WORDS:
        return "offline", machine.state_reason, machine.state_since
    why = "; ".join(part for part in (machine.health_reason, unreached if offline else "") if part)
    return _WORDS.get(Host.Health(machine.health), "to be checked"), why, machine.health_since


def _advice(machine: Machine, word: str, lab: _Lab) -> str:
    """What brings it back, by itself or by a person."""
    if word in _BY_HAND:
        return _BY_HAND[word]
    hold = f"{machine.health_hold[:1].upper()}{machine.health_hold[1:]}; or a person releases it on its page."
    found = (
        (machine.pk in lab.cycling, "It is to be switched off and on; look at it if that does not help."),
        (machine.is_held, hold),
        (machine.state == Host.State.OFFLINE, "Nothing reaches it: look at its power, its network and its agent."),
        (machine.pk in lab.checks, "A health session comes first; if it passes, work goes on by itself."),
    )
    return next((text for holds, text in found if holds), "Look at it, then have it checked or release it on its page.")


# A machine's noise as a picture: what it showed between equal kernels, night by night.
_LATELY = timedelta(days=60)
_MOST_NIGHTS = 30
# Of a machine with 400 cases a month of nights.
_MOST_ROWS = 15_000
_SHARE = 0.95
_CHANGES = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


def sessions_of_course(machine: Machine) -> "QuerySet[Any, Any]":
    return equal_sessions([machine.pk], since=clock.now() - _LATELY)


def noise_course(sessions: Collection[int]) -> NoiseCourse:
    """One query. A false alarm is what the noise profile counts as one."""
    rows = judged_in(sessions).order_by("-computed_at")
    nights: dict[date, list[tuple[float, bool]]] = defaultdict(list)
    for at, ratio, verdict, code in rows.values_list("computed_at", "ratio", "verdict", "reason_code")[:_MOST_ROWS]:
        if ratio is not None and ratio > 0:
            alarmed = verdict in _CHANGES or code == Because.SAME_IMAGE
            nights[at.date()].append((abs(math.log(ratio)), alarmed))
    last = sorted(nights)[-_MOST_NIGHTS:]
    return NoiseCourse(tuple(_night(day, nights[day]) for day in last))


def _night(day: date, cells: list[tuple[float, bool]]) -> Night:
    sizes = sorted(size for size, _ in cells)
    spread = math.expm1(sizes[min(math.ceil(_SHARE * len(sizes)), len(sizes)) - 1])
    return Night(day, spread, sum(alarmed for _, alarmed in cells), len(cells))
