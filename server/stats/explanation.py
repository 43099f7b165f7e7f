"""What separates the machines on which something changed from the others: the answer and its sentence."""

from dataclasses import dataclass
from enum import StrEnum

from server.stats.facts import Statement

# Beyond this many equivalent facts a sentence names only their number.
_NAMED = 3


class Question(StrEnum):
    REGRESSED = "regressed against the rest"
    IMPROVED = "improved against the rest"
    SPLIT = "regressed against improved"


class Outcome(StrEnum):
    ONE = "one"  # a single smallest explanation
    SEVERAL = "several"  # equally small explanations that these machines cannot tell apart
    NONE = "none"  # no fact and no two facts separate the machines
    NO_CONTRAST = "no-contrast"  # no machine to compare with


@dataclass(frozen=True)
class Condition:
    """What all changed machines show and no other does: one statement, or two joined by "and" or "or".

    Each part lists all statements that are true of the same machines, the suspected facts first.
    """

    parts: tuple[tuple[Statement, ...], ...]
    word: str = ""

    @property
    def text(self) -> str:
        return f" {self.word} ".join(part[0].text for part in self.parts)

    @property
    def alike(self) -> tuple[str, ...]:
        """The other facts that could stand in place of those named."""
        return tuple(statement.text for part in self.parts for statement in part[1:])


@dataclass(frozen=True)
class Evidence:
    """The machines that an answer rests on. Those left out are named with the reason."""

    changed: tuple[str, ...]
    others: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    unknown_facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The answer to one question.

    `chance` is the share of all `ways` to choose the changed machines in which some statement tried would have
    separated them too: 1 means that these machines cannot support any explanation. `found` counts all equally small
    conditions, of which `conditions` lists the first; `tried` counts the different separations that single facts
    make. `contradiction` names two machines that differ in verdict and in no known fact.
    """

    question: Question
    outcome: Outcome
    evidence: Evidence
    conditions: tuple[Condition, ...] = ()
    found: int = 0
    chance: float | None = None
    ways: int = 0
    tried: int = 0
    contradiction: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """One sentence."""
        verb = "improved" if self.question is Question.IMPROVED else "regressed"
        others = "the improved ones" if self.question is Question.SPLIT else "the others"
        if self.outcome is Outcome.NO_CONTRAST:
            count = len(self.evidence.changed)
            return f"No machine with another verdict is there to compare with the {count} that {verb}."
        if self.outcome is Outcome.NONE:
            between = "No known fact and no two of them separate the machines that"
            return f"{between} {verb} from {others}{self._contradicting}."
        named = self.conditions[0]
        instead = f" ({_listed('also', named.alike)})" if named.alike else ""
        more = f", or one of {self.found - 1} other explanations as small" if self.outcome is Outcome.SEVERAL else ""
        return f"The machines that {verb} show {named.text}{instead}, {others} do not{more}; {self._weight}."

    @property
    def _contradicting(self) -> str:
        if self.contradiction is None:
            return ""
        one, other = self.contradiction
        return f": {one} and {other} have equal facts and different verdicts"

    @property
    def _weight(self) -> str:
        machines = f"{len(self.evidence.changed)} against {len(self.evidence.others)} machines"
        if self.chance is None or self.chance >= 1:
            return f"with {machines} some fact always does this, so it proves nothing"
        return f"with {machines} chance alone finds such facts in {100 * self.chance:.2g} % of cases"


def _listed(word: str, texts: tuple[str, ...]) -> str:
    named = ", ".join(texts[:_NAMED])
    left = len(texts) - _NAMED
    return f"{word} {named} and {left} more" if left > 0 else f"{word} {named}"
