"""What is wrong with the dispatcher, in plain words, and what a person can do about it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from server.lab.models import JenkinsController

# Rounds follow each other within seconds; silence this long means that nobody makes any.
_SILENT = timedelta(minutes=5)
# Nothing is decided by the controller's clock, but people compare its logs with ours.
_SKEWED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """`details` are for staff: they may name the controller's address and files of this host."""

    what: str
    since: datetime | None
    advice: str
    details: str = ""


def alarms_of(controller: JenkinsController | None, now: datetime) -> tuple[Alarm, ...]:
    """The most urgent first; none when all is well."""
    if controller is None:
        advice = "Look at TIDEMARK_JENKINS_URL and whether a worker is running."
        return (Alarm("The Jenkins controller was never asked.", None, advice),)
    found = []
    if controller.alarm:
        advice = "Only a person can mend this; nothing but one request a minute is sent until then."
        found.append(Alarm(controller.alarm, controller.alarm_since, advice))
    if controller.unreachable_since:
        what = "The Jenkins controller does not answer."
        advice = "Nothing new is handed out; what runs goes on by itself. Look whether Jenkins runs."
        found.append(Alarm(what, controller.unreachable_since, advice, controller.trouble))
    if controller.round_at is None or now - controller.round_at > _SILENT:
        advice = "Rounds are made by the worker of the queue lab, woken by beat: look whether both run."
        found.append(Alarm("No round of the dispatcher was finished lately.", controller.round_at, advice))
    skew = controller.clock_skew_seconds
    if skew is not None and abs(skew) > _SKEWED_SECONDS:
        what = f"The controller's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours."
        found.append(Alarm(what, None, "Nothing is decided by it; set the clock there to read its logs beside ours."))
    return tuple(found)
