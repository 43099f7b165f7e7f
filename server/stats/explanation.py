"""What separates the machines on which something changed from the others: the answer and its sentence."""

from dataclasses import dataclass
from enum import StrEnum

from server.stats.facts import Statement

# Beyond this many equivalent facts a sentence names only their number.
_NAMED = 3
# In percent: what is rarer or more frequent is written as "less than" or "more than".
_RAREST, _MOST_FREQUENT = 0.01, 99.5


class Question(StrEnum):
    REGRESSED = "regressed against the rest"
    IMPROVED = "improved against the rest"
    SPLIT = "regressed against improved"


class Outcome(StrEnum):
    ONE = "one"  # a single smallest explanation
    SEVERAL = "several"  # equally small explanations, or facts that separate alike: these machines cannot choose
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
        """The other facts that could stand in place of those named; another wording of the same fact is none."""
        return tuple(statement.text for statement in self._alike)

    @property
    def alike_in_words(self) -> str:
        """Of many only the first, or beside a suspected fact the other suspected ones: models differ in dozens."""
        named = list(self.alike[:_NAMED])
        if len(self.alike) > _NAMED and any(part[0].suspected for part in self.parts):
            named = [one.text for one in self._alike if one.suspected]
        left = len(self.alike) - len(named)
        counted = [f"{left} other fact{'s' if left > 1 else ''}"] if left else []
        return " and ".join([part for part in (", ".join(named), *counted) if part])

    @property
    def _alike(self) -> list[Statement]:
        return [statement for part in self.parts for statement in part if statement.subject != part[0].subject]


@dataclass(frozen=True)
class Evidence:
    """The machines that an answer rests on. Those left out are named with the reason.

    `unknown_facts` are those that not all of these machines tell, or not all in the same shape.
    """

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
    make. `complete` is false when there were too many pairs of facts to try them all. `contradiction` names two
    machines of one model that differ in verdict and in no fact.
    """

    question: Question
    outcome: Outcome
    evidence: Evidence
    conditions: tuple[Condition, ...] = ()
    found: int = 0
    chance: float | None = None
    ways: int = 0
    tried: int = 0
    complete: bool = True
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
            between = (
                "No known fact and no two of them" if self.complete else "No known fact and none of the pairs tried"
            )
            return f"{between} separate the machines that {verb} from {others}{self._contradicting}{self._untold}."
        named = self.conditions[0]
        instead = f" (also {named.alike_in_words}: no machine here tells them apart)" if named.alike else ""
        more = f", or one of {self.found - 1} other explanations as small" if self.found > 1 else ""
        # Of the others "do not show no fsrm" would be read as its opposite.
        who = f"of all machines that {verb} and of none of {others}"
        return f"True {who}: {named.text}{instead}{more}; {self._weight}."

    @property
    def _contradicting(self) -> str:
        if self.contradiction is None:
            return ""
        one, other = self.contradiction
        return f": {one} and {other} have equal facts and different verdicts"

    @property
    def _untold(self) -> str:
        unknown = self.evidence.unknown_facts
        return f"; {_listed('not told by all of them:', unknown)}" if unknown else ""

    @property
    def _weight(self) -> str:
        machines = f"{len(self.evidence.changed)} against {len(self.evidence.others)} machines"
        if self.chance is None or self.chance >= 1:
            return f"with {machines} some fact always does this, so it proves nothing"
        least = "" if self.complete else "at least "
        return f"with {machines} chance alone finds such facts in {least}{_percent(self.chance)} of cases"


def _percent(share: float) -> str:
    percent = 100 * share
    if percent < _RAREST:
        return f"less than {_RAREST:g} %"
    if percent >= _MOST_FREQUENT:
        return f"more than {_MOST_FREQUENT:g} %"
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2g} %"


def _listed(word: str, texts: tuple[str, ...]) -> str:
    named = ", ".join(texts[:_NAMED])
    left = len(texts) - _NAMED
    return f"{word} {named} and {left} more" if left > 0 else f"{word} {named}"
