"""What people decide about hosts, builds and sessions. Each step names who did it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Q

from server.builds.models import Build, BuildState
from server.builds.wanted import is_present
from server.core import clock
from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, ApiToken, Transition
from server.core.reasons import Because, Reason
from server.core.states import new_trace
from server.core.tasks import enqueue
from server.lab.attempts.ends import cancel_attempt, end_session
from server.lab.hosts import probes
from server.lab.hosts.health import open_health_sessions, plan_health_session
from server.lab.hosts.state import Health, change_health
from server.lab.hosts.trouble import power_trouble, want_power_cycle
from server.lab.models import (
    Asker,
    Attempt,
    Boot,
    BootState,
    Builder,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
    Trial,
    TrialState,
)
from server.sources.models import SeriesState

Host = Machine | Builder
_LONGEST_REASON = 2000


def quarantine(host: Host, reason: str, *, actor: str) -> None:
    """Nothing more goes there until it is released or passes a check; what runs there is stopped and planned again.

    Whoever quarantines a host does not trust what it does now.
    """
    _change(host, Health.QUARANTINED, reason, actor)
    why = Because.HOST_TROUBLE(f"{host.name} was quarantined by {actor}: {reason}")
    _call_off_checks(host, why)
    _stop_work(host, why)


def retire(host: Host, reason: str, *, actor: str) -> None:
    """For good, as far as the service is concerned; what runs there is stopped."""
    _change(host, Health.RETIRED, reason, actor)
    _call_off_power_cycles(host, actor)
    _stop_work(host, Because.HOST_TROUBLE(f"{host.name} was retired by {actor}: {reason}"))


def maintain(host: Host, reason: str, *, actor: str) -> None:
    """Nothing new goes there; what runs is finished first, since nothing is wrong with it."""
    _change(host, Health.MAINTENANCE, reason, actor)
    _call_off_power_cycles(host, actor)
    enqueue("lab.sweep")


def release(host: Host, reason: str, *, actor: str) -> None:
    """Good again, on the word of a person."""
    _change(host, Health.GOOD, reason, actor)
    enqueue("lab.dispatch")


def begin_maintenance(host: Host, reason: str, *, actor: str) -> None:
    """`maintain` one that is in order. DomainError `conflict` where its trouble, or a check, would be forgotten."""
    if host.health not in {Health.GOOD, Health.MAINTENANCE}:
        raise DomainError("conflict", f"{host.name} is {host.health}: its page says what lifts that")
    maintain(host, reason, actor=actor)


def end_maintenance(host: Host, reason: str, *, actor: str) -> None:
    """Good again, if it was in somebody's hands. DomainError `conflict` for one that is out of service for trouble."""
    if host.health == Health.GOOD:
        return
    if host.health != Health.MAINTENANCE:
        raise DomainError(
            "conflict", f"{host.name} is {host.health}, not in maintenance: its page says what lifts that"
        )
    release(host, reason, actor=actor)


def check(machine: Machine, *, actor: str, reason: str = "") -> Session | None:
    """Only work again once a health session has passed; the session, or None while its kernel is being built."""
    reason = reason or f"a check was asked for by {actor}"
    if not machine.enabled:
        raise DomainError("disabled", f"{machine.name} is disabled: nothing goes there")
    if machine.health != Health.UNKNOWN:
        _change(machine, Health.UNKNOWN, reason, actor)
    return plan_health_session(machine, reason)


def power_cycle(machine: Machine, reason: str, *, actor: str) -> PowerCycle:
    """Have it switched off and on; a session that runs there is stopped first and planned again."""
    reason = _checked(reason, actor)
    cycle = want_power_cycle(machine, Because.BY_PERSON(f"{actor}: {reason}"), actor=actor)
    _stop_work(machine, Because.HOST_TROUBLE(f"{machine.name} is switched off and on for {actor}: {reason}"))
    enqueue("lab.dispatch")
    return cycle


def call_physical(machine: Machine, reason: str, *, actor: str) -> None:
    """It is no virtual machine, on the word of a person who knows it: what it measures is evidence from now on."""
    probes.call_physical(machine, _checked(reason, actor), actor=actor)


def doubt(machine: Machine, reason: str, *, actor: str) -> None:
    """Nobody vouches for it any more: what probes doubt counts again."""
    probes.take_back(machine, _checked(reason, actor), actor=actor)


def can_power_cycle() -> bool:
    """Whether this site has a control host; for pages that offer it."""
    return not power_trouble()


def _checked(reason: str, actor: str) -> str:
    reason = " ".join(reason.split())[:_LONGEST_REASON]
    if not reason:
        raise DomainError("no-reason", "say why: others will want to know")
    if not actor:
        raise DomainError("no-actor", "say who decides this")
    return reason


def _change(host: Host, health: str, reason: str, actor: str) -> None:
    reason = _checked(reason, actor)
    # Of two hosts with one token a person has put one away by now, whichever; both are found again if not.
    scope = ApiToken.Scope.MACHINE if isinstance(host, Machine) else ApiToken.Scope.BUILDER
    Asker.objects.filter(scope=scope, subject=host.name).update(boots_before=[])
    if change_health(host, health, reason, actor=actor):
        return
    host.refresh_from_db(fields=["health", "health_reason"])
    if host.health != health:
        raise DomainError("moved", f"{host.name} became {host.health} meanwhile: look again", permanent=False)


def _call_off_power_cycles(host: Host, actor: str) -> None:
    """Nobody wants the power switched while his hands are in a machine; who does says so once more."""
    cycles = PowerCycle.objects.filter(machine__name=host.name, state=PowerCycleState.WANTED)
    for cycle in cycles if isinstance(host, Machine) else ():
        told = Because.BY_PERSON(f"{actor} took {host.name} into his hands")
        cycle.advance(PowerCycleState.CANCELED, told, actor=actor)


def _call_off_checks(host: Host, reason: Reason) -> None:
    """A check that goes on would only say what nobody asked for: who quarantined the machine has it checked himself."""
    for session in open_health_sessions().filter(machine__name=host.name) if isinstance(host, Machine) else ():
        attempt = session.attempts.filter(state__in=Attempt.ACTIVE).first()
        if attempt is None:
            end_session(session, SessionState.CANCELED, reason)
        else:
            cancel_attempt(attempt, reason)


def _stop_work(host: Host, reason: Reason) -> None:
    """Trouble of the host is not the work's: the attempts end as lost, and their work is planned again."""
    own = {"machine": host} if isinstance(host, Machine) else {"builder": host}
    for attempt in Attempt.objects.filter(**own, state__in=Attempt.ACTIVE).select_related("session", "build"):
        cancel_attempt(attempt, reason, losing=True)
    enqueue("lab.sweep")


_LONGEST_REASON_OF_BUILD = 500


def ask_again(build: Build, reason: str, *, actor: str) -> int:
    """Want a failed build anew, and the sessions that were not booted for it; returns how many those are.

    Its attempts are counted anew. Raises DomainError: `no-reason`; `conflict` for one that did not fail, or whose
    configuration was edited since.
    """
    reason = " ".join(reason.split())[:_LONGEST_REASON_OF_BUILD]
    if not reason:
        raise DomainError("no-reason", "say why it is to be built again: it becomes part of its history")
    with transaction.atomic():
        row = Build.objects.select_for_update(of=("self",)).select_related("config", "toolchain").get(pk=build.pk)
        if row.state != BuildState.FAILED:
            raise DomainError("conflict", f"build {row.pk} is {row.state}: only one that failed is asked for again")
        if not is_present(row):
            said = "its configuration or toolchain was edited since: who wants this kernel wants another build"
            raise DomainError("conflict", f"build {row.pk}: {said}")
        fields = {"trace": new_trace(), "given_up": False, "first_error": "", "log_tail": ""}
        row.advance(BuildState.WANTED, Because.ASKED_AGAIN(f"asked for again: {reason}"), actor=actor, **fields)
        again = sum(_boot_again(session, row, actor) for session in _left_out(row))
        enqueue("lab.dispatch")
    return again


def _left_out(build: Build) -> list[Session]:
    """Sessions of series, and of trials that go on, that failed before they began. All else is answered for good."""
    rows = Session.objects.select_for_update(of=("self",)).filter(
        Q(base_build=build) | Q(patched_build=build), state=SessionState.FAILED, concluded_at=None
    )
    of_series = Q(purpose=Session.Purpose.SERIES, series__state=SeriesState.APPLIED, trial__state=TrialState.FAILED)
    rows = rows.filter(of_series | Q(trial__state=TrialState.MEASURING))
    begun = Boot.objects.exclude(started_by="").values("session")
    return list(rows.exclude(pk__in=begun).select_related("trial").order_by("pk"))


def _boot_again(session: Session, build: Build, actor: str) -> bool:
    why = Because.ASKED_AGAIN(f"build {build.pk} was asked for again")
    trial = Trial.objects.select_for_update(of=("self",), no_key=True).get(sessions=session)
    # Another machine's session may have opened it already.
    if trial.state == TrialState.FAILED:
        trial.advance(TrialState.MEASURING, why, actor=actor, answered_at=None)
    if trial.state != TrialState.MEASURING or not session.advance(SessionState.PLANNED, why, actor=actor):
        return False
    for boot in session.boots.filter(state=BootState.FAILED):
        boot.advance(BootState.PLANNED, why)
    return True


# Trees have single digits; anything beyond this is a slip.
MOST_PRIORITY = 1000
_SHOWN_NEEDS = 20


@dataclass(frozen=True)
class Wish:
    """What is to change; null: leave it. `deadline` is a moment, or "" for none any more."""

    priority: int | None = None
    deadline: datetime | str | None = None
    needs: tuple[str, ...] | None = None


def change_urgency(session: Session, wish: Wish, *, actor: str) -> str:
    """Store what the wish changes; returns it in words, "" if all was so already.

    Raises DomainError if the session is over, or the wish cannot be meant.
    """
    if not actor:
        raise DomainError("no-actor", "say who decides this")
    _check(wish)
    with transaction.atomic():
        row = Session.objects.select_for_update(of=("self",)).get(pk=session.pk)
        if row.state in Session.FINAL:
            raise DomainError("over", f"{row} is over: {row.state}")
        told = _apply(row, wish)
        if told:
            row.save(update_fields=["priority", "deadline_at", "needs"])
            Transition.objects.create(
                trace=row.trace, subject="session", subject_id=row.pk, before=row.state, after=row.state,
                **Because.BY_PERSON(told).columns(), actor=actor[:LONGEST_ACTOR],
            )  # fmt: skip
    enqueue("lab.dispatch")
    return told


def _check(wish: Wish) -> None:
    if wish.priority is not None and abs(wish.priority) > MOST_PRIORITY:
        raise DomainError("bad-priority", f"priority {wish.priority}: from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    if isinstance(wish.deadline, datetime) and wish.deadline <= clock.now():
        raise DomainError("bad-deadline", f"deadline {wish.deadline:%Y-%m-%d %H:%M %Z} is in the past")
    machines = Machine.objects.filter(enabled=True)
    if wish.needs and not machines.filter(capabilities__contains=sorted(wish.needs)).exists():
        # The next sweep would fail the session for a slip of the pen.
        known = sorted({word for words in machines.values_list("capabilities", flat=True) for word in words})
        there = ", ".join(known[:_SHOWN_NEEDS]) or "none"
        wanted = ", ".join(sorted(wish.needs))
        raise DomainError("no-such-machine", f"no machine has all of {wanted}; capabilities of machines: {there}")


def _apply(row: Session, wish: Wish) -> str:
    told = []
    if wish.priority is not None and wish.priority != row.priority:
        told.append(f"priority {row.priority} -> {wish.priority}")
        row.priority = wish.priority
    deadline = wish.deadline or None
    if wish.deadline is not None and deadline != row.deadline_at:
        assert deadline is None or isinstance(deadline, datetime)
        told.append(f"deadline {_moment(row.deadline_at)} -> {_moment(deadline)}")
        row.deadline_at = deadline
    if wish.needs is not None and sorted(set(wish.needs)) != sorted(row.needs):
        told.append(f"needs {', '.join(row.needs) or 'nothing'} -> {', '.join(sorted(set(wish.needs))) or 'nothing'}")
        row.needs = sorted(set(wish.needs))
    return "; ".join(told)


def _moment(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "none"
