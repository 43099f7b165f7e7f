"""Which sessions make a result together, when it is time, and which numbers must not be believed however sure they
look.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.builds.models import Artifact
from server.core.reasons import Because, Reason
from server.core.rows.together import Row, read_together
from server.lab.models import Boot, Session, Trial


@dataclass(frozen=True)
class Scope:
    """The sessions that a result speaks about, all physical or all virtual."""

    sessions: tuple[Session, ...]
    virtual: bool

    @property
    def done(self) -> list[Session]:
        """Those that have something to tell."""
        return [session for session in self.sessions if has_told(session)]


def has_told(session: Session) -> bool:
    """Whether its boots are judged: it is done, or it ended early after boots enough for its first look."""
    if session.state == Session.State.DONE:
        return True
    return session.state == Session.State.FAILED and session.concluded_at is not None


def that_have_told() -> Q:
    """`has_told`, for queries."""
    return Q(state=Session.State.DONE) | Q(state=Session.State.FAILED, concluded_at__isnull=False)


def is_same_code(session: Session) -> bool:
    """Done without a boot: both kernels run the same code, there was nothing to measure."""
    return session.state == Session.State.DONE and session.reason_code == Because.SAME_CODE


def trial_scope(trial: Trial, *, virtual_too: bool | None = None) -> Scope | None:
    """All sessions of the kind that is judged, once every session is over; None before that.

    Physical machines alone are evidence: where one was wanted, virtual ones are stored and not judged. Virtual ones
    are judged among themselves when the site says so, or `virtual_too` does. None as well when all sessions were
    canceled.
    """
    sessions = list(
        Session.objects.filter(trial=trial)
        .select_related("machine__uarch", "base_build", "patched_build")
        .order_by("machine__name")
    )
    if any(session.state not in Session.FINAL for session in sessions):
        return None
    judged, virtual = judged_sessions(sessions, virtual_too=virtual_too)
    return Scope(tuple(judged), virtual) if judged else None


def judged_sessions(sessions: Sequence[Session], *, virtual_too: bool | None = None) -> tuple[list[Session], bool]:
    """Of all sessions of a trial those that may be judged together, and whether they are the virtual ones."""
    allowed = settings.VIRTUAL_VERDICTS if virtual_too is None else virtual_too
    virtual = _virtual_sessions(sessions)
    wanted = {session.pk for session in sessions if session.state != Session.State.CANCELED}
    if wanted - virtual:
        return [session for session in sessions if session.pk not in virtual], False
    if wanted and allowed:
        return [session for session in sessions if session.pk in virtual], True
    return [], False


def trials_to_look_at() -> list[int]:
    """Trials being measured that have boots nobody looked at, or whose sessions are all over; oldest first."""
    sessions = Session.objects.filter(trial=OuterRef("pk"))
    unseen = sessions.filter(state=Session.State.DONE, concluded_at=None)
    going_on = sessions.filter(state__in=Session.OPEN)
    open_trials = Trial.objects.filter(state=Trial.State.MEASURING)
    return list(open_trials.filter(Exists(unseen) | ~Exists(going_on)).order_by("pk").values_list("pk", flat=True))


def unanswered_trials() -> list[int]:
    """Trials that are over and whose result nobody took up; oldest first."""
    over = Trial.objects.filter(state__in=Trial.FINAL, answered_at=None)
    return list(over.order_by("pk").values_list("pk", flat=True))


def _virtual_sessions(sessions: Sequence[Session]) -> set[int]:
    """A session is virtual if its machine is, or if the probe of one of its boots saw a hypervisor."""
    seen = Boot.objects.filter(session__in=sessions, facts__virtual=True).values_list("session_id", flat=True)
    return {session.pk for session in sessions if session.machine.virtual} | set(seen)


_SAME_IMAGE = Because.SAME_IMAGE()
_OTHER_MACHINE = Because.OTHER_MACHINE("the machine's hardware or firmware changed between the boots of the session")
_OTHER_SINCE = Because.OTHER_MACHINE("the machine's hardware or firmware changed between the sessions")


@dataclass(frozen=True)
class Doubt:
    """Why a session is not believed: of a `whole` one nothing, else only the changes that it claims."""

    reason: Reason
    whole: bool = False


def doubts_about(sessions: Sequence[Session]) -> dict[int, Doubt]:
    """By session; those that may be believed are left out. One query.

    A/A trials compare equal kernels on purpose: what they claim is their result, a false alarm.
    """
    return doubts_beside(sessions, {})[0]


def doubts_beside(
    sessions: Sequence[Session], apart: Mapping[int, Sequence[int]]
) -> tuple[dict[int, Doubt], dict[int, Doubt]]:
    """The same, and that of boots of different sessions, by what they are given for. One query."""
    owner_of = {boot: owner for owner, own in apart.items() for boot in own}
    rows = Session.objects.filter(pk__in=[session.pk for session in sessions], trial__purpose=Trial.Purpose.NOISE)
    # The base kernel alone is asked for the machine: a patch could make its own kernel lie.
    base = Boot.objects.filter(session__in=sessions, arm=Boot.Arm.BASE, state=Boot.State.MEASURED)
    noise, images, told, told_apart = read_together(
        rows.order_by().values_list("pk"),
        _images_of(sessions),
        base.order_by().values_list("session_id", "facts__fingerprint"),
        Boot.objects.filter(pk__in=owner_of).order_by().values_list("pk", "facts__fingerprint"),
    )
    on_purpose = {pk for (pk,) in noise}
    compared = [session for session in sessions if session.pk not in on_purpose]
    doubts = {pk: Doubt(_SAME_IMAGE) for pk in _with_one_image(compared, images)}
    doubts |= {pk: Doubt(_OTHER_MACHINE, whole=True) for pk in _of_two_machines(told)}
    owners = _of_two_machines((owner_of[boot], fingerprint) for boot, fingerprint in told_apart)
    return doubts, {owner: Doubt(_OTHER_SINCE, whole=True) for owner in owners}


def sessions_with_one_image(sessions: Sequence[Session]) -> set[int]:
    """Sessions whose two kernels are byte for byte the same image, with the same modules beside it."""
    return _with_one_image(sessions, _images_of(sessions))


def _images_of(sessions: Sequence[Session]) -> "QuerySet[Any, Any]":
    builds = {build for session in sessions for build in (session.base_build_id, session.patched_build_id)}
    found = Artifact.objects.filter(build__in=builds, kind=Artifact.Kind.IMAGE).order_by()
    # A patch of a module leaves the image as it is.
    return found.values_list("build_id", "sha256", "build__kernel_hash")


def _with_one_image(sessions: Sequence[Session], told: Iterable[Row]) -> set[int]:
    images = {build: tuple(same) for build, *same in told}
    return {
        session.pk
        for session in sessions
        if session.base_build_id in images and images[session.base_build_id] == images.get(session.patched_build_id)
    }


def _of_two_machines(told: Iterable[Row]) -> set[int]:
    """Of (owner, fingerprint of a boot) the owners with two fingerprints of one scheme (the number before the dash)."""
    seen: dict[tuple[int, str], set[str]] = {}
    for owner, fingerprint in told:
        if isinstance(fingerprint, str) and fingerprint:
            seen.setdefault((owner, fingerprint.partition("-")[0]), set()).add(fingerprint)
    return {owner for (owner, _scheme), fingerprints in seen.items() if len(fingerprints) > 1}
