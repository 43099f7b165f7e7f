"""The stop switch: one act holds back all that would leave the site, mails and calls, until another lets it go on."""

from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR
from server.reports.models import MailStop


def current_stop() -> MailStop | None:
    return MailStop.objects.filter(ended_at=None).first()


def may_leave() -> bool:
    """Asked at the moment of sending: neither the operator's setting nor a person holds it back."""
    return bool(settings.MAIL_ENABLED) and current_stop() is None


def stop_all(*, reason: str, actor: str) -> MailStop:
    """Whoever comes second finds it stopped. DomainError `nobody` or `no-reason`."""
    person, why = _said(reason, actor)
    with transaction.atomic(), advisory_lock("reports.stop") as free:
        if (stop := current_stop()) is not None:
            return stop
        if not free:
            raise DomainError("changed", "somebody is stopping it at this moment: look again")
        return MailStop.objects.create(person=person, reason=why)


def go_on(*, reason: str, actor: str, stop_id: int) -> bool:
    """End the stop that was shown. False where it was over already. DomainError `nobody`, `no-reason` or `changed`."""
    person, why = _said(reason, actor)
    ended = MailStop.objects.filter(pk=stop_id, ended_at=None).update(
        ended_at=clock.now(), ended_by=person, ended_because=why
    )
    stop = current_stop()
    if not ended and stop is not None:
        raise DomainError("changed", f"{stop.person} has stopped it again since: {stop.reason}")
    return bool(ended)


def _said(reason: str, actor: str) -> tuple[str, str]:
    person, why = actor.strip()[:LONGEST_ACTOR], reason.strip()
    if not person:
        raise DomainError("nobody", "the stop switch: who turns it is not said")
    if not why:
        raise DomainError("no-reason", "the stop switch: why it is turned is not said")
    return person, why
