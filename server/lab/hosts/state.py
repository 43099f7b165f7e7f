"""What hosts do (state) and how they are (health): two questions, each answered by conditional UPDATEs with a history.

A host's state follows its attempts and power cycles and can be worked out from them at any time (`mend_states`). Its
health is what the service or a person decided. A person's decision to take a host out is never undone by the service.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from server.core import clock
from server.core.models import Transition
from server.core.states import new_trace
from server.lab.models import Attempt, AttemptState, Builder, Machine, PowerCycle, PowerCycleState, Trial
from server.lab.port import HostSighting, dispatcher, dispatcher_of
from server.lab.work import boots_itself

log = structlog.get_logger(__name__)

State = Machine.State
Health = Machine.Health
_TRIES = 3
# After this long a connection is one of the system that was switched on, not what is left of the one before.
CONNECTION_SETTLED_SECONDS = 300.0
# Only a person takes a host out of these.
IN_HANDS = frozenset({Health.MAINTENANCE, Health.RETIRED})
# Machines in a quarantine that no health session lifts; `Machine.is_held` for queries.
HELD = Q(health=Health.QUARANTINED) & ~Q(health_hold="")


@dataclass(frozen=True)
class HostHello:
    """What a host says of itself; `safe` is null where it cannot tell, `key` empty when it works at nothing."""

    boot_id: str = ""
    build_id: str = ""
    safe: bool | None = None
    key: str = ""
    agent_version: str = ""


def change_state(host: Machine | Builder, state: str, reason: str = "", *, trace: str = "") -> bool:
    """Go from the state this object was read in to `state`; False, and nothing changes, if that is where it is.

    False, too, if another process moved the row first.
    """
    before = host.state
    if before == state:
        return False
    fields = {"state": state, "state_reason": reason, "state_since": clock.now()}
    return _change(host, {"state": before}, fields, f"{_kind(host)}-state", reason, trace=trace)


def change_health(host: Machine | Builder, health: str, reason: str, *, actor: str = "", hold: str = "") -> bool:
    """Go from the health this object was read in to `health`, or stay there for another reason; False if neither.

    `actor` is the person who decided; the service alone (an empty one) does not touch what is in somebody's hands.
    `hold`, with a quarantine of a machine, says what lifts it besides a person, since no health session does. It stands
    until the machine leaves the quarantine, whatever else is found meanwhile, or a person decides anything.
    """
    before = host.health
    if before == health and (reason == host.health_reason or not reason):
        return False
    if not actor and is_in_hands(host):
        return False
    fields: dict[str, object] = {"health": health, "health_reason": reason}
    if before != health:
        fields["health_since"] = clock.now()
    known: dict[str, object] = {"health": before}
    if isinstance(host, Machine):
        stays = before == health and not actor
        fields["health_hold"] = hold or (host.health_hold if stays else "")
        if not actor:
            # A person who confirmed the quarantine meanwhile has lifted the hold, and is not overruled.
            known["health_hold"] = host.health_hold
    return _change(host, known, fields, f"{_kind(host)}-health", reason, actor=actor)


def is_in_hands(host: Machine | Builder) -> bool:
    """Whether only a person may say how this host is: in maintenance, retired, or quarantined by a person."""
    if host.health != Health.QUARANTINED:
        return host.health in IN_HANDS
    lines = Transition.objects.filter(subject=f"{_kind(host)}-health", subject_id=host.pk, after=Health.QUARANTINED)
    began = lines.exclude(before=Health.QUARANTINED).order_by("-id").values_list("id", flat=True).first() or 0
    return lines.filter(id__gte=began).exclude(actor="").exists()


def quarantined_by_person() -> Q:
    """The same of machines in quarantine, for queries."""
    lines = Transition.objects.filter(subject="machine-health", after=Health.QUARANTINED)
    later = lines.filter(subject_id=OuterRef("subject_id"), id__gt=OuterRef("pk")).exclude(before=Health.QUARANTINED)
    return Q(Exists(lines.filter(~Exists(later), subject_id=OuterRef("pk")).exclude(actor="")))


def _change(
    host: Machine | Builder,
    known: Mapping[str, object],
    fields: Mapping[str, object],
    subject: str,
    reason: str,
    *,
    actor: str = "",
    trace: str = "",
) -> bool:
    word = next(iter(known))
    trace = trace or new_trace()
    with transaction.atomic():
        if type(host)._default_manager.filter(pk=host.pk, **known).update(**fields) != 1:
            return False
        before = str(known[word])
        for name, value in fields.items():
            setattr(host, name, value)
        after = str(fields[word])
        Transition.objects.create(
            trace=trace, subject=subject, subject_id=host.pk, before=before, after=after, reason=reason, actor=actor
        )
        name = host.name
        transaction.on_commit(
            lambda: log.info(
                "host_changed", trace=trace, subject=subject, host=name, before=before, after=after, reason=reason
            )
        )
    return True


def _kind(host: Machine | Builder) -> str:
    return "machine" if isinstance(host, Machine) else "builder"


# --- following attempts ----------------------------------------------------------------


def follow_attempt(attempt: Attempt) -> None:
    """Set the state of the attempt's host from what the attempt does. Call it in the transaction of each step."""
    if attempt.builder_id is not None:
        follow_builder(attempt.builder_id, trace=attempt.trace)
    elif attempt.machine_id is not None:
        follow_machine(attempt.machine_id, ended=attempt, trace=attempt.trace)
    elif attempt.power_cycle is not None:
        follow_machine(attempt.power_cycle.machine_id, trace=attempt.trace)


def follow_machine(machine_id: int, *, ended: Attempt | None = None, trace: str = "") -> None:
    """Bring a machine's state in line with its attempt and power cycle; `ended` is the one that may have just ended."""
    for _ in range(_TRIES):
        machine = Machine.objects.get(pk=machine_id)
        state, reason = _state_of_machine(machine, ended)
        if state == machine.state or change_state(machine, state, reason, trace=trace):
            return


def _state_of_machine(machine: Machine, ended: Attempt | None) -> tuple[str, str]:
    active = Attempt.objects.filter(machine=machine, state__in=Attempt.ACTIVE).first()
    if active is not None:
        return (State.WORKING if _has_begun(active) else State.RESERVED), active.key
    cycle = PowerCycle.objects.filter(machine=machine, state__in=PowerCycle.OPEN).first()
    if cycle is not None:
        return State.POWER_CYCLING, cycle.reason
    if machine.state not in {State.RESERVED, State.WORKING}:
        return machine.state, machine.state_reason
    if ended is None:
        ended = Attempt.objects.filter(machine=machine).order_by("-id").first()
    if ended is not None and goes_away(machine, ended) and _has_begun(ended):
        return State.RETURNING, f"{ended.key} is over"
    return State.IDLE, f"{ended.key} is over" if ended is not None else ""


def _has_begun(attempt: Attempt) -> bool:
    return bool(attempt.arrived_at or attempt.agent) or attempt.state == AttemptState.RUNNING


def goes_away(machine: Machine, attempt: Attempt) -> bool:
    """Whether the machine leaves its dispatcher's sight to boot itself, and says hello when it is back."""
    return boots_itself(machine) and not dispatcher_of(attempt.adapter).is_local


def follow_builder(builder_id: int, *, trace: str = "") -> None:
    for _ in range(_TRIES):
        builder = Builder.objects.get(pk=builder_id)
        active = list(Attempt.objects.filter(builder=builder, state__in=Attempt.ACTIVE).order_by("id"))
        if active:
            begun = [attempt for attempt in active if _has_begun(attempt)]
            state, reason = (State.WORKING, begun[0].key) if begun else (State.RESERVED, active[0].key)
        else:
            state, reason = (
                (State.OFFLINE, builder.state_reason) if builder.state == State.OFFLINE else (State.IDLE, "")
            )
        if state == builder.state or change_state(builder, state, reason, trace=trace):
            return


def _hosts(**chosen: object) -> list[Machine | Builder]:
    return [*Machine.objects.filter(**chosen), *Builder.objects.filter(**chosen)]


def mend_states() -> None:
    """Bring every state in line with the attempts: a process may have been killed between the two."""
    busy = list(Attempt.objects.filter(state__in=Attempt.ACTIVE).defer("log").order_by("id"))
    of_machines: dict[int | None, list[Attempt]] = {
        attempt.machine_id: [attempt] for attempt in busy if attempt.machine_id is not None
    }
    cycling = set(PowerCycle.objects.filter(state__in=PowerCycle.OPEN).values_list("machine", flat=True))
    for machine_id in _out_of_line(Machine, of_machines, cycling):
        follow_machine(machine_id)
    of_builders: dict[int | None, list[Attempt]] = {}
    for attempt in busy:
        if attempt.builder_id is not None:
            of_builders.setdefault(attempt.builder_id, []).append(attempt)
    for builder_id in _out_of_line(Builder, of_builders, set()):
        follow_builder(builder_id)
    if dispatcher().is_local:
        _bring_back()


def _out_of_line(
    kind: type[Machine] | type[Builder], busy: Mapping[int | None, list[Attempt]], cycling: Collection[int]
) -> list[int]:
    """Ids of the hosts whose state is another one than their work says: one query, however many are at work."""
    at_work = Q(state__in=[State.RESERVED, State.WORKING])
    concerned = kind._default_manager.filter(at_work | Q(pk__in=[*busy, *cycling])).order_by("pk")
    return [
        host
        for host, state in concerned.values_list("pk", "state")
        if state != _state_at_work(busy.get(host, ()), cycling=host in cycling)
    ]


def _state_at_work(active: Sequence[Attempt], *, cycling: bool) -> str:
    """What a host's state is while it has active attempts or a power cycle; else empty, and it has to be looked at."""
    if active:
        return State.WORKING if any(map(_has_begun, active)) else State.RESERVED
    return State.POWER_CYCLING if cycling else ""


def _bring_back() -> None:
    """States that only nodes of a controller have; a site that went back to a local dispatcher has none."""
    away = [State.OFFLINE, State.RETURNING]
    for host in _hosts(state__in=away):
        change_state(host, State.IDLE, "hosts of a local dispatcher are always there")


# --- hosts that are seen ---------------------------------------------------------------


def note_hello(host: Machine | Builder, hello: HostHello) -> None:
    """A host says that it is there. A machine without work, and not in a kernel under test, is back."""
    now = clock.now()
    host.last_seen_at = now
    if isinstance(host, Builder):
        Builder.objects.filter(pk=host.pk).update(last_seen_at=now)
        return
    Machine.objects.filter(pk=host.pk).update(last_seen_at=now, boot_id=hello.boot_id[:36], safe=hello.safe)
    host.boot_id, host.safe = hello.boot_id[:36], hello.safe
    if hello.key or hello.safe is False:
        return
    if host.state == State.RETURNING:
        change_state(host, State.IDLE, "it said hello")
    elif host.state == State.POWER_CYCLING and _cycled(host, settled_seconds=0.0):
        change_state(host, State.IDLE, "it said hello after it was switched off and on")


def note_sightings(hosts: Mapping[str, HostSighting]) -> None:
    """Which nodes are connected, by node name. An idle host that is not connected, or not known there, is offline.

    A local dispatcher has no nodes, and nothing is concluded from a look that shows none at all.
    """
    if not hosts or dispatcher().is_local:
        return
    for host in _hosts(enabled=True):
        seen = hosts.get(host.node_name, HostSighting(connected=False, detail=f"no node {host.node_name}"))
        if seen.connected:
            _note_connected(host)
        elif host.state == State.IDLE:
            change_state(host, State.OFFLINE, seen.detail or "not connected")
    connected = [name for name, seen in hosts.items() if seen.connected and seen.is_now]
    named = Q(node__in=connected) & ~Q(node="") | Q(node="", name__in=connected)
    Machine.objects.filter(named).update(last_seen_at=clock.now())
    Builder.objects.filter(named).update(last_seen_at=clock.now())


def _note_connected(host: Machine | Builder) -> None:
    if host.state == State.OFFLINE:
        change_state(host, State.IDLE, "connected")
        return
    cycling = isinstance(host, Machine) and host.state == State.POWER_CYCLING
    if cycling and _cycled(host, settled_seconds=CONNECTION_SETTLED_SECONDS):
        change_state(host, State.IDLE, "connected after it was switched off and on")


def _cycled(machine: Machine | Builder, *, settled_seconds: float) -> bool:
    """Whether its last power cycle was done, and at least `settled_seconds` ago."""
    last = PowerCycle.objects.filter(machine=machine.pk).order_by("-id").first()
    if last is None or last.state != PowerCycleState.DONE:
        return False
    return (clock.now() - last.state_since).total_seconds() >= settled_seconds


def out_of_service(machine: Machine, trial: Trial | None = None) -> str:
    """Why it takes no session of this trial, or of any; empty for one that is enabled and well."""
    if not machine.enabled:
        return f"machine {machine.name} is disabled"
    if machine.health == Health.GOOD or is_tried(machine, trial):
        return ""
    word = "in maintenance" if machine.health == Health.MAINTENANCE else machine.health
    reason = f": {machine.health_reason}" if machine.health_reason else ""
    return f"machine {machine.name} is {word}{reason}"


def is_tried(machine: Machine, trial: Trial | None) -> bool:
    """Whether the machine is held in quarantine, and the trial compares equal kernels there: that asks how it is."""
    return machine.is_held and trial is not None and trial.purpose == Trial.Purpose.NOISE
