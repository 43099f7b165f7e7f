"""Sessions whose numbers must not be believed, however sure they look."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.builds.models import Artifact
from server.lab.models import Boot, Session, Trial

SAME_IMAGE = "both kernels are the same image: the difference is the machine's own"
OTHER_MACHINE = "the machine's hardware or firmware changed between the boots of the session"


@dataclass(frozen=True)
class Doubt:
    """Why a session is not believed: of a `whole` one nothing, else only the changes that it claims."""

    reason: str
    whole: bool = False


def doubts_about(sessions: Sequence[Session]) -> dict[int, Doubt]:
    """By session; those that may be believed are left out. Three queries at most.

    A/A trials compare equal kernels on purpose: what they claim is their result, a false alarm.
    """
    trials = [session.trial_id for session in sessions if session.trial_id is not None]
    noise = set(Trial.objects.filter(pk__in=trials, purpose=Trial.Purpose.NOISE).values_list("pk", flat=True))
    compared = [session for session in sessions if session.trial_id not in noise]
    doubts = {pk: Doubt(SAME_IMAGE) for pk in sessions_with_one_image(compared)}
    return doubts | {pk: Doubt(OTHER_MACHINE, whole=True) for pk in _on_two_machines(sessions)}


def sessions_with_one_image(sessions: Sequence[Session]) -> set[int]:
    """Sessions whose two kernels are byte for byte the same image, with the same modules beside it."""
    builds = {build for session in sessions for build in (session.base_build_id, session.patched_build_id)}
    found = Artifact.objects.filter(build__in=builds, kind=Artifact.Kind.IMAGE)
    # A patch of a module leaves the image as it is.
    images = {build: tuple(same) for build, *same in found.values_list("build_id", "sha256", "build__kernel_hash")}
    return {
        session.pk
        for session in sessions
        if session.base_build_id in images and images[session.base_build_id] == images.get(session.patched_build_id)
    }


def _on_two_machines(sessions: Sequence[Session]) -> set[int]:
    """Sessions of trials whose base boots show two fingerprints of one scheme (the number before the dash).

    The base kernel alone is asked: a patch could make its own kernel lie.
    """
    of_trials = [session.pk for session in sessions if session.trial_id is not None]
    boots = Boot.objects.filter(session__in=of_trials, arm=Boot.Arm.BASE, state=Boot.State.MEASURED)
    seen: dict[tuple[int, str], set[str]] = {}
    for session, fingerprint in boots.values_list("session_id", "facts__fingerprint"):
        if isinstance(fingerprint, str) and fingerprint:
            seen.setdefault((session, fingerprint.partition("-")[0]), set()).add(fingerprint)
    return {session for (session, _scheme), fingerprints in seen.items() if len(fingerprints) > 1}
