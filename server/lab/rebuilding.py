"""Sessions that wait for their machine while a kernel of theirs is not there any more."""

from django.db.models import Q

from server.builds.blame import blame
from server.builds.models import Build, BuildState
from server.builds.services import is_present, wake_build, want_build
from server.lab.attempts import end_session
from server.lab.models import BootState, Session, SessionState

_GONE = (BuildState.EXPIRED, BuildState.CANCELED)


def tend_kernels() -> int:
    """Have missing kernels of waiting sessions built again, or end the sessions; returns how many were touched.

    A session whose kernel cannot come out as the same one again goes on with new kernels if nothing of it is measured
    yet. Otherwise its boots would be of two kernels, and it fails. Safe to repeat.
    """
    arms = ("base_build", "patched_build")
    waiting = Session.objects.filter(state=SessionState.PLANNED)
    missing = Q(base_build__state__in=[*_GONE, BuildState.FAILED])
    missing |= Q(patched_build__state__in=[*_GONE, BuildState.FAILED])
    related = [f"{arm}__{name}" for arm in arms for name in ("revision", "config", "toolchain")]
    return sum(_tend(session) for session in waiting.filter(missing).select_related(*related, "machine"))


def _tend(session: Session) -> bool:
    builds = [session.base_build, session.patched_build]
    judgement = blame(*builds)
    if judgement.sentence:
        return end_session(session, SessionState.FAILED, judgement.sentence)
    gone = [build for build in builds if build.state in _GONE]
    lost = [build for build in gone if not is_present(build)]
    if lost:
        return _replace(session, lost[0])
    for build in gone:
        # Both arms of a health session are one row; a step that another process has made is as good.
        build.refresh_from_db()
        if build.state in _GONE:
            wake_build(build, session.trace)
    return bool(gone)


def _replace(session: Session, lost: Build) -> bool:
    why = f"build {lost.pk} cannot be made again as it was: {lost.reason}"
    if session.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).exists():
        return end_session(session, SessionState.FAILED, why)
    base, patched = (
        want_build(revision=old.revision, config=old.config, toolchain=old.toolchain, trace=session.trace)
        for old in (session.base_build, session.patched_build)
    )
    return session.note(f"with builds {base.pk} and {patched.pk}: {why}", base_build=base, patched_build=patched)
