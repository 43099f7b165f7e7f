"""Which sessions make the finding of a series, and when it is time."""

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Exists, OuterRef

from server.lab.models import Boot, Session
from server.sources.models import Series


@dataclass(frozen=True)
class Scope:
    """The sessions that a finding speaks about, all physical or all virtual."""

    sessions: tuple[Session, ...]
    virtual: bool

    @property
    def done(self) -> list[Session]:
        return [session for session in self.sessions if session.state == Session.State.DONE]


def scope_of(series: Series) -> Scope | None:
    """All sessions of the kind that is judged, once every session of the series is over; None before that.

    Physical machines alone are evidence: where one was wanted, virtual ones are stored and not judged. Virtual ones
    are judged among themselves when the site says so. A series whose sessions were all canceled is not judged.
    """
    sessions = list(
        Session.objects.filter(series=series)
        .select_related("machine__uarch", "base_build", "patched_build")
        .order_by("machine__name")
    )
    if any(session.state not in Session.FINAL for session in sessions):
        return None
    virtual = _virtual_sessions(sessions)
    wanted = {session.pk for session in sessions if session.state != Session.State.CANCELED}
    if wanted - virtual:
        return Scope(tuple(session for session in sessions if session.pk not in virtual), virtual=False)
    if wanted and settings.VIRTUAL_VERDICTS:
        return Scope(tuple(session for session in sessions if session.pk in virtual), virtual=True)
    return None


def series_awaiting_judgement() -> list[int]:
    """Applied series whose sessions are all over and that have no finding."""
    sessions = Session.objects.filter(series=OuterRef("pk"))
    wanted = sessions.exclude(state=Session.State.CANCELED)
    if not settings.VIRTUAL_VERDICTS:
        wanted = wanted.filter(machine__virtual=False)
    waiting = (
        Series.objects.filter(Exists(wanted), state=Series.State.APPLIED, finding=None)
        .exclude(Exists(sessions.exclude(state__in=Session.FINAL)))
        .order_by("pk")
    )
    return list(waiting.values_list("pk", flat=True))


def _virtual_sessions(sessions: list[Session]) -> set[int]:
    """A session is virtual if its machine is, or if the probe of one of its boots saw a hypervisor."""
    seen = Boot.objects.filter(session__in=sessions, facts__virtual=True).values_list("session_id", flat=True)
    return {session.pk for session in sessions if session.machine.virtual} | set(seen)
