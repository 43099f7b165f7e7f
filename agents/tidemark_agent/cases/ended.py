"""How a case that gives no values ends: an outcome with its reason, carried up to the runner."""

from tidemark_agent.errors import AgentError

OUTCOMES = ("failed", "timeout", "garbled", "oom", "skipped", "infrastructure")


class CaseEndedError(AgentError):
    """The case is over without values. `evidence` is what the program printed, if one ran."""

    def __init__(self, outcome: str, reason: str, evidence: str = "") -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = reason
        self.evidence = evidence


class StuckError(CaseEndedError):
    """A process of the case was killed and is still there, so nothing more can be measured until the next boot."""
