"""Opening attempts: committed before anything is started outside."""

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Max

from server.builds.models import Build
from server.lab.hosts import follow_attempt
from server.lab.models import Attempt, AttemptState, Builder, Machine, PowerCycle, Session
from server.lab.scheduling import Placement
from server.lab.works import claim_deadline, kind_of

log = structlog.get_logger(__name__)


def open_attempt(placement: Placement, adapter: str) -> Attempt | None:
    """Commit the attempt before anything is started outside; None if another process was first."""
    try:
        with transaction.atomic():
            return _open(placement, adapter)
    except IntegrityError as error:
        # The machine has another attempt by now: two dispatchers chose different sessions for it.
        log.info("placement_taken", item=str(placement.item), error=str(error).partition("\n")[0])
        return None


def _open(placement: Placement, adapter: str) -> Attempt | None:
    item, host = placement.item, placement.host
    # Not their count: a key must never be given out twice, whatever became of older attempts.
    number = (item.attempts.aggregate(last=Max("number"))["last"] or 0) + 1
    if not item.advance("dispatched", f"attempt {number}"):
        return None
    if host is not None and not _still_fits(item, host):
        transaction.set_rollback(True)
        log.info("placement_withdrawn", item=str(item), host=host.name)
        return None
    attempt = Attempt.objects.create(
        key=f"{kind_of(item)}-{item.pk}-{number}",
        number=number,
        build=item if isinstance(item, Build) else None,
        session=item if isinstance(item, Session) else None,
        power_cycle=item if isinstance(item, PowerCycle) else None,
        builder=host if isinstance(host, Builder) else None,
        machine=host if isinstance(host, Machine) and isinstance(item, Session) else None,
        adapter=adapter,
        slots=placement.slots,
        state=AttemptState.SUBMITTING,
        trace=item.trace,
        deadline_at=claim_deadline(),
    ).record_creation()
    follow_attempt(attempt)
    return attempt


def _still_fits(item: Build | Session | PowerCycle, host: Builder | Machine) -> bool:
    """Whether the host is as it was when it was chosen, and still that of the work.

    A round goes on for a while after its decision: a person may have taken the host out of service since, or the sweep
    given the session to a sister machine. Both are held still until the attempt is committed.
    """
    if isinstance(item, Session) and not Session.objects.filter(pk=item.pk, machine=host.pk).exists():
        return False
    rows = type(host)._default_manager.select_for_update(of=("self",))
    if not rows.filter(pk=host.pk, enabled=host.enabled, health=host.health).exists():
        return False
    # Where nothing holds it in quarantine any more, sessions of equal kernels do not go there either.
    return isinstance(host, Builder) or Machine.objects.filter(pk=host.pk, health_hold=host.health_hold).exists()
