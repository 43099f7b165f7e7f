"""Asking for a trial: one question, one row; on which machines it is measured, and what it costs."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least

from server.builds.models import KernelConfig
from server.core import clock
from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.lab.hosts.state import Health, out_of_service
from server.lab.models import LATE, BootState, Machine, Session, Trial, TrialState
from server.sources.models import Revision, Series, Tree
from server.stats.comparison.decisions import Design

# Looks of a question that is worth as many boots as it takes (docs/statistics.md).
USUAL_LOOKS = Design().looks
_LONGEST_KEY = 120


@dataclass(frozen=True)
class Ask:
    """A question. `looks` are boots a side; one alone is a fixed number, else the machine's own comes first.

    No `machines` are all that the tree of the base is interested in; no `benchmarks` are all. `min_effect` is a
    fraction, None: what each cell's noise says. `budget_seconds` is machine time, None: no limit. `priority` counts on
    top of the tree's.
    """

    key: str
    purpose: str
    base: Revision
    patched: Revision
    looks: tuple[int, ...]
    trace: str
    series: Series | None = None
    machines: tuple[Machine, ...] = ()
    benchmarks: tuple[str, ...] = ()
    layout: bool = False
    min_effect: float | None = None
    budget_seconds: float | None = None
    priority: int = 0


def want_trial(ask: Ask) -> Trial:
    """The trial of this question: the one there is, whatever became of it, or a new one that the sweep plans.

    Who wants a question asked again asks another one, by another key. Raises DomainError `bad-trial`.
    """
    _check(ask)
    with transaction.atomic():
        trial, created = Trial.objects.get_or_create(
            key=ask.key,
            defaults={
                "purpose": ask.purpose,
                "series": ask.series,
                "base": ask.base,
                "patched": ask.patched,
                "layout": ask.layout,
                "benchmarks": sorted(set(ask.benchmarks)),
                "looks": list(ask.looks),
                "budget_seconds": ask.budget_seconds,
                "min_effect": ask.min_effect,
                "priority": ask.priority,
                "state": TrialState.WANTED,
                "trace": ask.trace,
            },
        )
        if created:
            trial.record_creation()
            trial.machines.set(ask.machines)
            enqueue("builds.sweep")
    return trial


def _check(ask: Ask) -> None:
    if not 0 < len(ask.key) <= _LONGEST_KEY:
        raise DomainError("bad-trial", f"key {ask.key[:200]!r}: from 1 to {_LONGEST_KEY} characters")
    if ask.purpose not in Trial.Purpose.values:
        raise DomainError("bad-trial", f"{ask.key}: there is no purpose {ask.purpose!r}")
    try:
        Design(looks=ask.looks)
    except ValueError as error:
        raise DomainError("bad-trial", f"{ask.key}: {error}") from error
    if ask.budget_seconds is not None and not ask.budget_seconds > 0:
        raise DomainError("bad-trial", f"{ask.key}: a budget of {ask.budget_seconds} seconds")
    if ask.min_effect is not None and not 0 <= ask.min_effect < 1:
        raise DomainError("bad-trial", f"{ask.key}: a minimum effect of {ask.min_effect}, no fraction below 1")
    if any(before == after for before, after in pairwise(sorted(machine.pk for machine in ask.machines))):
        raise DomainError("bad-trial", f"{ask.key}: a machine is named twice")


def purpose_of(session: Session) -> str:
    """The question that the session answers; for one of a series its subject.

    Reads the session's series, trial and machine.
    """
    if session.series is not None:
        return session.series.subject
    if session.trial is not None:
        return f"trial: {Trial.Purpose(session.trial.purpose).label}"
    return f"whether {session.machine.name} is well"


# What other machines say must not wait for one that may be away for weeks.
PATIENCE_FOR_ALL = timedelta(days=1)
# Longer than a weekend. After that the answer is: it cannot be measured here.
PATIENCE_FOR_ANY = timedelta(days=7)


@dataclass(frozen=True)
class Station:
    """A machine, and the configuration of the kernels that it boots for the trial."""

    machine: Machine
    config: KernelConfig


@dataclass(frozen=True)
class Choice:
    """`places` to measure at now. `waits_for` says what is waited for, `trouble` why it can never be measured."""

    places: tuple[Station, ...] = ()
    waits_for: str = ""
    trouble: str = ""


def choose_places(trial: Trial) -> Choice:
    """The good machines of the trial, each with its configuration or the other code layout of it.

    A trial that names machines waits a while for all of them, and longer for any; then it does with those there are.
    """
    named = list(trial.machines.order_by("name").select_related("config", "toolchain", "uarch"))
    machines = named or _interested(trial)
    if trial.layout:
        machines = [machine for machine in machines if _config(machine, layout=True) is not None]
        if not machines:
            return Choice(trouble="no machine's configuration has another code layout")
    good = [machine for machine in machines if not out_of_service(machine, trial)]
    if not good:
        return _nowhere(trial, machines)
    if len(good) < len(machines) and _waited(trial) < PATIENCE_FOR_ALL:
        return Choice(waits_for=_absent(machines))
    found = [(machine, _config(machine, layout=trial.layout)) for machine in good]
    return Choice(tuple(Station(machine, config) for machine, config in found if config is not None))


def machines_for(tree: Tree) -> QuerySet[Machine]:
    """Good machines of the microarchitectures that the tree is interested in; of all where the lab has none of them."""
    enabled = Machine.objects.filter(enabled=True).select_related("config", "toolchain", "uarch")
    wanted = enabled.filter(uarch__name__in=tree.uarchs)
    return (wanted if wanted.exists() else enabled).filter(health=Health.GOOD)


def _interested(trial: Trial) -> list[Machine]:
    """Those of the trial's tree. Heads make no points on virtual machines where there are physical ones."""
    machines = list(machines_for(trial.base.tree))
    if trial.purpose != Trial.Purpose.HEAD:
        return machines
    physical = [machine for machine in machines if not machine.virtual]
    return physical or (machines if settings.VIRTUAL_VERDICTS else [])


def is_hopeless(trial: Trial) -> bool:
    """Whether what the trial waits for has not come for so long that it is given up.

    What people sent is never given up for reasons of ours.
    """
    return trial.purpose != Trial.Purpose.SERIES and _waited(trial) >= PATIENCE_FOR_ANY


def _waited(trial: Trial) -> timedelta:
    return clock.now() - trial.created_at


def _nowhere(trial: Trial, machines: list[Machine]) -> Choice:
    why = _absent(machines) if machines else "no machine that its tree is interested in is in service"
    if trial.purpose == Trial.Purpose.NOISE:
        return Choice(trouble=f"no longer idle and well: {why}")
    if is_hopeless(trial) and not _left_lately(trial, machines):
        return Choice(trouble=f"waited {_waited(trial).days} days in vain: {why}")
    return Choice(waits_for=why)


def _left_lately(trial: Trial, machines: list[Machine]) -> bool:
    """Whether one of them was there until a moment ago: the trial waited for its kernels then, not for the machine.

    Twice as long is enough in any case, or one that goes and comes would be waited for without end.
    """
    since = clock.now() - PATIENCE_FOR_ALL
    left = any(machine.enabled and machine.health_since > since for machine in machines)
    return left and _waited(trial) < 2 * PATIENCE_FOR_ANY


def _absent(machines: list[Machine]) -> str:
    return "; ".join(filter(None, map(out_of_service, machines)))


def _config(machine: Machine, *, layout: bool) -> KernelConfig | None:
    if not layout:
        return machine.config
    return machine.config.layouts.filter(arch=machine.config.arch).order_by("name").first()


# A machine's clock may jump while it boots: no boot is charged with less than nothing or more than a day.
_NOTHING, _MOST = timedelta(0), timedelta(days=1)


@dataclass(frozen=True)
class Cost:
    """Sessions that were planned, boots that were begun, and seconds of machines that the boots took."""

    sessions: int
    boots: int
    seconds: float


def spent(trial_ids: Collection[int]) -> Cost:
    """What these trials cost together so far; a boot that is under way counts until now."""
    row = Session.objects.filter(trial__in=trial_ids).aggregate(
        sessions=Count("pk", distinct=True),
        begun=Count("boots", filter=Q(boots__started_at__isnull=False)),
        seconds=Sum(_seconds()),
    )
    total = row["seconds"] or _NOTHING
    return Cost(row["sessions"], row["begun"], total.total_seconds())


def spent_by_session(trial_id: int) -> dict[int, float]:
    """Seconds of its machine that each session of a trial took so far."""
    rows = Session.objects.filter(trial=trial_id).order_by().annotate(seconds=Sum(_seconds()))
    return {pk: (total or _NOTHING).total_seconds() for pk, total in rows.values_list("pk", "seconds")}


def _seconds() -> Case:
    """What a boot took. One that waits to be tried again keeps its beginning, and costs nothing until the next."""
    end = Case(When(boots__state=BootState.RUNNING, then=Value(clock.now())), default=F("boots__ended_at"))
    took = ExpressionWrapper(end - F("boots__started_at"), output_field=DurationField())
    return Case(
        When(boots__started_at=None, then=Value(_NOTHING)),
        When(boots__state=BootState.PLANNED, then=Value(_NOTHING)),
        When(boots__outcome=LATE, then=Value(_NOTHING)),
        default=Least(Greatest(Coalesce(took, Value(_NOTHING)), Value(_NOTHING)), Value(_MOST)),
        output_field=DurationField(),
    )
