"""What lost attempts tell about their host: a machine that is switched off and on, and a host that fails at what
others do well.
"""

from collections.abc import Sequence
from typing import TypeVar

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, QuerySet

from server.builds.models import Build
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.lab.hosts.probes import TRUSTED_BOOT, trees_of_patches
from server.lab.hosts.state import IN_HANDS, Health, State, change_health, change_state, follow_attempt, follow_machine
from server.lab.models import (
    LATEST_FIRST,
    Attempt,
    AttemptState,
    Boot,
    BootStart,
    Builder,
    Fault,
    Machine,
    PowerCycle,
    PowerCycleState,
)
from server.lab.port import dispatcher
from server.lab.work import is_leased


def power_trouble() -> str:
    """Why no machine of this site can be switched off and on; empty where it can."""
    port = dispatcher()
    if port.is_local:
        return f"the {port.name} dispatcher has no control host"
    return "" if settings.LAB_CONTROL else "no control host is configured (TIDEMARK_LAB_CONTROL)"


def want_power_cycle(machine: Machine, reason: Reason, *, actor: str = "") -> PowerCycle:
    """Have the machine switched off and on; the open power cycle if there is one already.

    It begins once no session holds the machine. Raises DomainError `no-power-control` where nobody could do it.
    """
    trouble = power_trouble()
    if trouble:
        raise DomainError("no-power-control", f"{machine.name} cannot be switched off and on: {trouble}")
    known = _open_cycle(machine)
    if known is not None:
        return _wanted_too(known, reason, actor)
    try:
        with transaction.atomic():
            cycle = PowerCycle(machine=machine, state=PowerCycleState.WANTED, **reason.columns())
            cycle.save()
            cycle.record_creation(actor=actor)
            follow_machine(machine.pk, trace=cycle.trace)
    except IntegrityError:
        known = _open_cycle(machine)
        if known is None:
            raise
        return _wanted_too(known, reason, actor)
    return cycle


def _wanted_too(cycle: PowerCycle, reason: Reason, actor: str) -> PowerCycle:
    """A person wants what the service wants already: it stands in the history with his name."""
    if actor:
        cycle.note(reason, actor=actor)
    return cycle


def _open_cycle(machine: Machine) -> PowerCycle | None:
    return PowerCycle.objects.filter(machine=machine, state__in=PowerCycle.OPEN).first()


def end_power_cycle(power_cycle: PowerCycle, ok: bool, reason: str) -> bool:  # noqa: FBT001 (binding signature)
    """Note how a power cycle ended. A machine that could not be switched is quarantined; one that was is waited for.

    False if it was over already.
    """
    if power_cycle.state not in PowerCycle.OPEN:
        return False
    with transaction.atomic():
        told = Reason(Because.POWER_SWITCHED if ok else Because.POWER_FAILED, reason)
        if not power_cycle.advance(PowerCycleState.DONE if ok else PowerCycleState.FAILED, told):
            return False
        if not ok:
            give_up_machine(power_cycle.machine, f"could not be switched off and on: {reason}")
    return True


def give_up_machine(machine: Machine, reason: str) -> None:
    """Take a machine that does not come back out of service: quarantined, and offline until it is seen again."""
    with transaction.atomic():
        machine.refresh_from_db(fields=["state", "state_reason", "health", "health_reason", "health_hold"])
        change_health(machine, Health.QUARANTINED, reason)
        if machine.state in {State.RETURNING, State.POWER_CYCLING}:
            change_state(machine, State.OFFLINE, reason)


_Host = TypeVar("_Host", Machine, Builder)
# Attempts in a row that a host fails, at more than one thing, before it is taken out of service. Two happen by chance
# when a network is slow; each one more costs an hour of a machine that measures nothing.
FAILURES_IN_A_ROW = 3
_LEAST_WORKS = 2
# Enough to find those in a row among the ones that do not count.
_LOOKED_AT = 12


def after_lost(attempt: Attempt, reason: str) -> None:
    """Draw the conclusions from an attempt that was just lost; call it in the transaction of the loss.

    A machine that went away and did not come back is switched off and on; one that was heard of within its lease has
    its time to return, which the sweep watches. Repeated trouble of one host while others work is a quarantine.
    """
    follow_attempt(attempt)
    if attempt.machine_id is not None:
        machine = Machine.objects.get(pk=attempt.machine_id)
        if machine.state == State.RETURNING and not is_leased(attempt):
            fetch_back(machine, f"{attempt.key} lost: {reason}")
        else:
            judge_machine(machine)
    elif attempt.builder_id is not None:
        judge_builder(Builder.objects.get(pk=attempt.builder_id))


def after_unfit(attempt: Attempt, reason: str) -> None:
    """Take a builder out of service that says itself what it lacks: each further build would come back like this one.

    Nobody's patch has run by then, and no other builder has to show that the work can be done.
    """
    builder = Builder.objects.filter(attempts=attempt, health=Health.GOOD).first()
    if builder is not None:
        change_health(builder, Health.QUARANTINED, f"it can build nothing: {reason}")


def fetch_back(machine: Machine, reason: str) -> PowerCycle | None:
    """Switch a machine that does not come back off and on; quarantine it where nobody can.

    Never one that is in somebody's hands.
    """
    if machine.health in IN_HANDS:
        change_state(machine, State.OFFLINE, reason)
        return None
    try:
        return want_power_cycle(machine, Because.LOST(reason))
    except DomainError as error:
        give_up_machine(machine, f"{reason}; {error.message}")
        return None


def _judge_unclaimed(host: Machine | Builder, latest: Sequence[Attempt]) -> bool:
    """Quarantine a host on which build after build fails before its agent can claim anything; whether it was.

    What was to be done there has no part in it, so that no other host has to show that it can be done.
    """
    row = latest[:FAILURES_IN_A_ROW]
    if len(row) < FAILURES_IN_A_ROW or not all(attempt.fault == Fault.HOST for attempt in row):
        return False
    told = (
        f"{len(row)} builds in a row failed before its agent came for its work; the last, {row[0].key}: {row[0].reason}"
    )
    return change_health(host, Health.QUARANTINED, told)


def judge_hosts() -> None:
    """What the two below do, of all hosts in service: two queries of each kind, and more only for those in trouble."""
    for machine, latest in _latest_ended(Machine.objects.filter(enabled=True, health=Health.GOOD)):
        _judge_machine(machine, latest)
    for builder, latest in _latest_ended(Builder.objects.filter(enabled=True, health=Health.GOOD)):
        _judge_builder(builder, latest)


def _latest_ended(hosts: "QuerySet[_Host]") -> "list[tuple[_Host, list[Attempt]]]":
    """Each with those since it is well that say something of it: not what never began there, or ran another's script.

    For each host its own look at the end of the index, however long its history is.
    """
    kind = "machine" if hosts.model is Machine else "builder"
    ended = Attempt.objects.filter(**{kind: OuterRef("pk")}, state__in=[AttemptState.DONE, AttemptState.LOST])
    ended = ended.exclude(posts=0, agent="").exclude(fault=Fault.JOB)
    newest = ended.order_by(LATEST_FIRST).values("pk")[:_LOOKED_AT]
    found = [(host, getattr(host, "newest")) for host in hosts.annotate(newest=ArraySubquery(newest))]  # noqa: B009
    keys = [pk for _host, attempts in found for pk in attempts]
    long = ("log", "build__log_tail", "build__first_error")
    rows = Attempt.objects.select_related("build").defer(*long).in_bulk(keys)
    return [
        (host, [rows[pk] for pk in attempts if rows[pk].created_at > host.health_since]) for host, attempts in found
    ]


def judge_machine(machine: Machine) -> bool:
    """Quarantine a good machine that lost all its latest attempts while others ended theirs; whether it was.

    A kernel under test may well hang a machine, or break what its agent needs: attempts that ended while one was
    booted say nothing about the machine, unless they ended well.
    """
    found = _latest_ended(Machine.objects.filter(pk=machine.pk)) if machine.health == Health.GOOD else []
    return any(_judge_machine(machine, latest) for _, latest in found)


def _judge_machine(machine: Machine, latest: Sequence[Attempt]) -> bool:
    if _judge_unclaimed(machine, latest):
        return True
    if sum(map(_failed, latest)) < FAILURES_IN_A_ROW:
        return False
    under_test = _keys_ended_under_test(latest)
    row = [one for one in latest if not _failed(one) or one.key not in under_test][:FAILURES_IN_A_ROW]
    if not _all_failed(row) or len({attempt.session_id for attempt in row}) < _LEAST_WORKS:
        return False
    others = Attempt.objects.exclude(machine=machine).filter(machine__isnull=False)
    if not others.filter(state=AttemptState.DONE, state_since__gte=row[-1].created_at).exists():
        return False
    return change_health(machine, Health.QUARANTINED, _say(row))


def judge_builder(builder: Builder) -> bool:
    """Quarantine a good builder that failed all its latest builds for our reasons while others build; whether it was.

    One of them must be of a source tree without patches: a series may bring any builder down.
    """
    found = _latest_ended(Builder.objects.filter(pk=builder.pk)) if builder.health == Health.GOOD else []
    return any(_judge_builder(builder, latest) for _, latest in found)


def _judge_builder(builder: Builder, latest: Sequence[Attempt]) -> bool:
    if _judge_unclaimed(builder, latest):
        return True
    row = latest[:FAILURES_IN_A_ROW]
    builds = {attempt.build for attempt in row if attempt.build is not None}
    if not _all_failed(row) or len(builds) < _LEAST_WORKS or not _one_without_patches(builds):
        return False
    others = Attempt.objects.exclude(builder=builder).filter(builder__isnull=False, state=AttemptState.DONE)
    if not others.filter(state_since__gte=row[-1].created_at).exclude(reason_code=Because.INFRASTRUCTURE).exists():
        return False
    return change_health(builder, Health.QUARANTINED, _say(row))


def _all_failed(row: Sequence[Attempt]) -> bool:
    return len(row) == FAILURES_IN_A_ROW and all(_failed(attempt) for attempt in row)


def _failed(attempt: Attempt) -> bool:
    return attempt.state == AttemptState.LOST or attempt.reason_code == Because.INFRASTRUCTURE


def _say(row: Sequence[Attempt]) -> str:
    told = "; ".join(f"{attempt.key}: {attempt.reason}" for attempt in row)
    return f"{len(row)} attempts in a row failed while other hosts work: {told}"


def _keys_ended_under_test(attempts: Sequence[Attempt]) -> set[str]:
    """Keys of those whose last boot was of a kernel that is being tested.

    The boot itself names only the latest attempt that began it, and a kernel that hangs is booted by one attempt after
    the other.
    """
    boots = Boot.objects.filter(session__in={attempt.session_id for attempt in attempts})
    trusted = set(boots.filter(TRUSTED_BOOT).values_list("pk", flat=True))
    starts = BootStart.objects.filter(attempt__in=attempts).order_by("id")
    last = dict(starts.values_list("attempt__key", "boot_id"))
    return {key for key, boot in last.items() if boot not in trusted}


def _one_without_patches(builds: set[Build]) -> bool:
    patched = trees_of_patches([build.tree_sha for build in builds])
    return any(build.tree_sha not in patched for build in builds)
