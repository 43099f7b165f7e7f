"""Which machines a trial is measured on."""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet

from server.builds.models import KernelConfig
from server.core import clock
from server.lab.hosts import Health
from server.lab.models import Machine, Trial
from server.lab.out_of_service import out_of_service
from server.sources.models import Tree

# What other machines say must not wait for one that may be away for weeks.
PATIENCE_FOR_ALL = timedelta(days=1)
# Longer than a weekend. After that the answer is: it cannot be measured here.
PATIENCE_FOR_ANY = timedelta(days=7)


@dataclass(frozen=True)
class Place:
    """A machine, and the configuration of the kernels that it boots for the trial."""

    machine: Machine
    config: KernelConfig


@dataclass(frozen=True)
class Choice:
    """`places` to measure at now. `waits_for` says what is waited for, `trouble` why it can never be measured."""

    places: tuple[Place, ...] = ()
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
    return Choice(tuple(Place(machine, config) for machine, config in found if config is not None))


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
