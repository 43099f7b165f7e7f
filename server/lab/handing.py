"""Handing committed attempts to the dispatcher, and taking them out of its hands again."""

import structlog

from server.lab.attempts import finish_canceled, lose_attempt, move_attempt, work_of
from server.lab.dispatch.base import Dispatcher, DispatchError, Observed
from server.lab.models import Attempt, AttemptState
from server.lab.works import is_leased

log = structlog.get_logger(__name__)


def submit(attempt: Attempt, port: Dispatcher) -> None:
    """Hand a committed attempt over. A failure leaves it in `submitting`: the next round tries again.

    One that trying again cannot mend loses the attempt.
    """
    try:
        port.submit(work_of(attempt))
    except DispatchError as error:
        log.warning("submit_failed", key=attempt.key, trace=attempt.trace, code=error.code, error=error.message)
        if error.permanent:
            lose_attempt(attempt, error.message)
        elif attempt.state == AttemptState.SUBMITTING:
            # Shown on the pages, so that people see why nothing starts.
            attempt.note(error.message)
        return
    if attempt.state == AttemptState.SUBMITTING:
        # The agent may have claimed it meanwhile; then this changes nothing.
        move_attempt(attempt, AttemptState.QUEUED, f"accepted by the {port.name} dispatcher")


def stop(attempt: Attempt, observed: Observed, port: Dispatcher) -> None:
    """One more step to the end of an attempt that is being stopped.

    What the dispatcher let go of may live on: until its lease is over, only its agent's own end or a proof of it ends
    the attempt, so that nothing else is given to its host beside it.
    """
    if observed is not Observed.ENDED:
        try:
            over = port.cancel(work_of(attempt))
        except DispatchError as error:
            log.warning("cancel_failed", key=attempt.key, trace=attempt.trace, code=error.code, error=error.message)
            return
        if not over or is_leased(attempt):
            return
    finish_canceled(attempt, attempt.reason)
