"""Nights of machines: which are idle and due for an A/A trial, what it measures, and asking for it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.states import new_trace
from server.detection.noise.profiles import refresh_profiles
from server.lab.attempts.arrivals import CaseOrder
from server.lab.care import MOST_PRIORITY
from server.lab.hosts.health import health_kernel
from server.lab.hosts.state import HELD
from server.lab.models import Machine, Session, Trial
from server.lab.trials.question import Ask, want_trial
from server.results.measurements import case_orders

_SECONDS = 3600
# Kernels are built in a day. What waits for longer waits for something else, and keeps nobody from measuring.
_SOON = timedelta(days=1)
# Trials of a machine that are looked back on for whose turn it is: more than a round through all cases takes.
_REMEMBERED = 100
# What one entry of a trial's `benchmarks` holds.
_LONGEST_ENTRY = 100


@dataclass(frozen=True)
class Share:
    """What one A/A session measures; `seconds` is the most that one of its boots may spend in cases."""

    benchmarks: tuple[str, ...]
    seconds: int


def due_machines() -> QuerySet[Machine]:
    """Good machines without any work that had no A/A trial for so long as the site says; virtual ones if they count.

    Those held in quarantine have them at the same pace: so they come back. What waits for them to do so keeps no trial
    from them.
    """
    if settings.NOISE_HOURS <= 0:
        return Machine.objects.none()
    now = clock.now()
    since = now - timedelta(hours=settings.NOISE_HOURS)
    trials = Trial.objects.filter(purpose=Trial.Purpose.NOISE, machines=OuterRef("pk"))
    open_sessions = Session.objects.filter(machine=OuterRef("pk"), state__in=Session.OPEN)
    awaited = Exists(open_sessions) | Exists(_on_its_way().filter(created_at__gt=now - _SOON))
    working = Exists(open_sessions.exclude(state=Session.State.PLANNED))
    machines = Machine.objects.filter(
        (Q(health=Machine.Health.GOOD) & ~awaited) | (HELD & ~working),
        ~Exists(trials.filter(created_at__gt=since)),
        ~Exists(trials.filter(state__in=[Trial.State.WANTED, Trial.State.MEASURING])),
        enabled=True,
    )
    if not settings.VIRTUAL_VERDICTS:
        machines = machines.filter(virtual=False)
    return machines.select_related("config", "toolchain", "health_build").order_by("name")


def _on_its_way() -> QuerySet[Trial]:
    """Trials that may come to the machine of the outer query as soon as their kernels are built."""
    anywhere_or_here = Q(machines=None) | Q(machines=OuterRef("pk"))
    return Trial.objects.filter(anywhere_or_here, state=Trial.State.WANTED)


def next_share(machine: Machine) -> Share:
    """The cases of the machine whose turn it is, as many as the time of one A/A session holds; at least one.

    Those that were never asked for come first, then those asked for longest ago. Empty where it measures nothing.
    """
    asked = _asked(machine)
    orders = case_orders(machine)
    most = settings.NOISE_SESSION_HOURS * _SECONDS / (2 * settings.NOISE_BOOTS)
    turns = {entry(order): _turn(order, asked) for order in orders}
    chosen: list[str] = []
    measured: dict[str, int] = {}
    for order in sorted(orders, key=lambda one: (turns[entry(one)], entry(one))):
        added = measured | _asked_by(entry(order), orders)
        if chosen and sum(added.values()) > most:
            break
        chosen.append(entry(order))
        measured = added
    return Share(tuple(chosen), sum(measured.values()))


def entry(order: CaseOrder) -> str:
    """How a case is asked for: BENCHMARK/CASE, of which the beginning is enough."""
    return f"{order.benchmark}/{order.case}"[:_LONGEST_ENTRY]


def _asked(machine: Machine) -> Sequence[Collection[str]]:
    """What the machine's A/A trials asked for, oldest first."""
    trials = Trial.objects.filter(purpose=Trial.Purpose.NOISE, machines=machine).order_by("-pk")
    return list(trials.values_list("benchmarks", flat=True)[:_REMEMBERED])[::-1]


def _turn(order: CaseOrder, asked: Sequence[Collection[str]]) -> int:
    """0 for a case that was never asked for, else the higher the later."""
    return max((number for number, one in enumerate(asked, 1) if entry(order) in one), default=0)


def _asked_by(wanted: str, orders: Sequence[CaseOrder]) -> dict[str, int]:
    """Time limits, by name, of all that one entry asks for: it may be the beginning of several cases' names."""
    names = {f"{order.benchmark}/{order.case}": order.timeout_seconds for order in orders}
    return {name: seconds for name, seconds in names.items() if name.startswith(wanted)}


log = structlog.get_logger(__name__)

# Asked for in one sweep at most; the next goes on.
_MOST_AT_ONCE = 20


def tend_noise() -> None:
    """Ask for the A/A trials that are due. Harmless to repeat and to kill: a trial's key is its machine and number."""
    asked = 0
    for machine in due_machines():
        if asked >= _MOST_AT_ONCE:
            return
        try:
            # One that has no kernel yet stays due, and must not stand in the way of those behind it.
            asked += want_noise_trial(machine) is not None
        except DomainError as error:
            # One machine's trouble must not keep the others from theirs.
            log.warning("noise_trial_not_wanted", machine=machine.name, code=error.code, error=error.message)


def want_noise_trial(machine: Machine) -> Trial | None:
    """The machine's next A/A trial; None while it has no trusted kernel that is built, or measures nothing.

    The kernel is that of its health sessions: one that no author of a patch had a hand in.
    """
    kernel = health_kernel(machine)
    share = next_share(machine) if kernel is not None else None
    if kernel is None or share is None or not share.benchmarks:
        return None
    # What judged sessions of equal kernels say besides (series whose patches changed no code) is taken up with it.
    refresh_profiles(machine)
    number = Trial.objects.filter(purpose=Trial.Purpose.NOISE, machines=machine).count() + 1
    return want_trial(
        Ask(
            key=f"noise:{machine.pk}:{number}",
            purpose=Trial.Purpose.NOISE,
            base=kernel.revision,
            patched=kernel.revision,
            looks=(settings.NOISE_BOOTS,),
            trace=new_trace(),
            machines=(machine,),
            benchmarks=share.benchmarks,
            # Whatever else the machine could do goes first.
            priority=-MOST_PRIORITY,
        )
    )
