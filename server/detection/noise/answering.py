"""What an A/A trial tells: the noise of its cells, and whether its machine drifts."""

from server.detection.noise.drift import judge_drift
from server.detection.noise.profiles import refresh_profiles
from server.lab.models import Session, Trial


def answer(trial: Trial) -> None:
    """Take up a trial of purpose NOISE that is over; harmless to repeat. One that was not measured tells nothing."""
    if trial.state != Trial.State.DONE:
        return
    done = trial.sessions.filter(state=Session.State.DONE).select_related("machine__uarch")
    for session in done.order_by("machine__name"):
        # A drift that is found takes its nights out of the profiles.
        judge_drift(trial, session.machine)
        refresh_profiles(session.machine)
