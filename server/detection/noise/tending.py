"""The sweep over idle machines: each gets its A/A trial when one is due."""

import structlog
from django.conf import settings

from server.core.errors import DomainError
from server.core.states import new_trace
from server.detection.noise.policy import due_machines, next_share
from server.detection.noise.profiles import refresh_profiles
from server.lab.health import health_kernel
from server.lab.models import Machine, Trial
from server.lab.trials.asking import Ask, want_trial
from server.lab.urgency import MOST_PRIORITY

log = structlog.get_logger(__name__)

# Asked for in one sweep at most; the next goes on.
_MOST_AT_ONCE = 20


def tend() -> None:
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
