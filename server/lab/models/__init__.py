"""The lab: hosts, the sessions that reserve machines, the boots inside, and attempts to get work done there."""

from server.lab.models.attempt import LATEST_FIRST, Attempt, AttemptState, BootStart, Fault, RoundMark, builds_at_work
from server.lab.models.canary import Canary
from server.lab.models.host import (
    Asker,
    Builder,
    CoreType,
    Enrolment,
    Facts,
    Host,
    Machine,
    MachineFacts,
    Microarchitecture,
)
from server.lab.models.trial import (
    LATE,
    Boot,
    BootState,
    Conditions,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
    Trial,
    TrialState,
)

__all__ = [
    "LATE",
    "LATEST_FIRST",
    "Asker",
    "Attempt",
    "AttemptState",
    "Boot",
    "BootStart",
    "BootState",
    "Builder",
    "Canary",
    "Conditions",
    "CoreType",
    "Enrolment",
    "Facts",
    "Fault",
    "Host",
    "Machine",
    "MachineFacts",
    "Microarchitecture",
    "PowerCycle",
    "PowerCycleState",
    "RoundMark",
    "Session",
    "SessionState",
    "Trial",
    "TrialState",
    "builds_at_work",
]
