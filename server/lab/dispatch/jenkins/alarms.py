"""How the controller answers: written down where pages show it, with an alarm where only a person can help."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from django.conf import settings
from django.db.models import Q

from server.core import clock
from server.lab.dispatch.base import DispatchError
from server.lab.dispatch.jenkins.answers import Head
from server.lab.dispatch.jenkins.errors import Crowded, Forbidden, Garbled, JenkinsError, TokenRefused, Unreachable
from server.lab.models import JenkinsController

log = structlog.get_logger(__name__)

# A refused token is not hammered against the controller, which may lock its user out.
_PROBE_EVERY = timedelta(minutes=1)
# A controller that starts refuses every token for a moment, in the words for a revoked one, and answers 503 before and
# after; a token file is empty while somebody writes it. Who was refused for so long, and had no other answer in
# between, is refused.
_BELIEVED_AFTER = timedelta(seconds=10)
_RENEW = "Renew the token of Jenkins' user {user} and write it into TIDEMARK_JENKINS_TOKEN_FILE; it is read at once"
_ALLOW = "Give Jenkins' user {user} the permission that is missing"


def controller() -> JenkinsController:
    return JenkinsController.objects.get_or_create(url=settings.JENKINS_URL)[0]


def check_alarm() -> None:
    """Raise DispatchError while an alarm stands, but for one call a minute, which may find that it is over."""
    row = controller()
    if not row.alarm:
        return
    now = clock.now()
    due = Q(round_at=None) | Q(round_at__lte=now - _PROBE_EVERY) | Q(round_at__gt=now)
    if not JenkinsController.objects.filter(due, pk=row.pk).update(round_at=now):
        raise DispatchError("jenkins-alarm", row.alarm, permanent=False)


def check_refused() -> None:
    """Raise DispatchError if we were refused since the last look, which begins each round: nothing more is sent."""
    row = controller()
    if row.alarm:
        raise DispatchError("jenkins-alarm", row.alarm, permanent=False)
    if row.refused_since:
        raise DispatchError("jenkins-refused", row.trouble, permanent=False)


@contextmanager
def noting(*, looking: bool = False) -> Iterator[None]:
    """Note what the block's requests come to. `looking` marks those without which nothing can be dispatched."""
    try:
        yield
    except TokenRefused as error:
        _note_refused(f"{_RENEW.format(user=settings.JENKINS_USER)} ({error.message}).", error)
        raise
    except Forbidden as error:
        text = f"{_ALLOW.format(user=settings.JENKINS_USER)} ({error.message})."
        if looking:
            _note_refused(text, error)
        else:
            _note_trouble(text)
        raise
    except (Unreachable, Garbled) as error:
        _note_unreachable(error)
        raise
    except Crowded:
        raise
    except JenkinsError as error:
        if looking:
            _note_unreachable(error)
        else:
            _note_trouble(error.message)
        raise


def note_answer(head: Head) -> None:
    """A look was answered in whole: the controller is there, the token is good."""
    row, now = controller(), clock.now()
    if row.alarm or row.unreachable_since:
        log.info("jenkins_answers_again", url=row.url, session=head.session)
    if row.session and head.session and row.session != head.session:
        log.info("jenkins_restarted", url=row.url, before=row.session, after=head.session)
    JenkinsController.objects.filter(pk=row.pk).update(
        session=head.session or row.session,
        version=head.version or row.version,
        answered_at=now,
        clock_skew_seconds=head.skew_seconds,
        unreachable_since=None,
        refused_since=None,
        # Trouble with a single request is written down again by the next one that has it.
        trouble="",
        alarm="",
        alarm_since=None,
    )


def note_round(seconds: float, requests: int) -> None:
    JenkinsController.objects.filter(url=settings.JENKINS_URL).update(
        round_at=clock.now(), round_seconds=seconds, round_requests=requests
    )


def _note_refused(alarm: str, error: JenkinsError) -> None:
    """No answer yet; an alarm once that has lasted."""
    row, now = controller(), clock.now()
    since = row.refused_since
    if row.alarm or (since is not None and now - since >= _BELIEVED_AFTER):
        _raise_alarm(alarm)
        return
    if since is None or since > now:
        log.warning("jenkins_refuses", url=row.url, error=error.message)
        since = now
    JenkinsController.objects.filter(pk=row.pk).update(
        refused_since=since, unreachable_since=row.unreachable_since or now, trouble=error.message
    )


def _raise_alarm(text: str) -> None:
    row, now = controller(), clock.now()
    if not row.alarm:
        log.error("jenkins_alarm", url=row.url, alarm=text)
    JenkinsController.objects.filter(pk=row.pk).update(alarm=text, alarm_since=row.alarm_since or now, round_at=now)


def _note_trouble(text: str) -> None:
    log.warning("jenkins_trouble", trouble=text)
    JenkinsController.objects.filter(url=settings.JENKINS_URL).update(trouble=text)


def _note_unreachable(error: JenkinsError) -> None:
    row = controller()
    if row.unreachable_since is None:
        log.warning("jenkins_unreachable", url=row.url, error=error.message)
    JenkinsController.objects.filter(pk=row.pk).update(
        refused_since=None, unreachable_since=row.unreachable_since or clock.now(), trouble=error.message
    )
