"""Why a change shows on some machines and not on others: the smallest facts that separate them, and chance."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product

from server.stats.cells import StatisticalVerdict
from server.stats.explanation.machine_facts import (
    NAMES,
    SUSPECTS,
    Facts,
    Statement,
    are_alike,
    is_guest,
    statements,
    tidy,
)

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
class FactEvidence:
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
    evidence: FactEvidence
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


@dataclass(frozen=True)
class Joined:
    """The pairs of statements that separate the target, as (first, second, word), and what else was tried.

    `tried` are the machines of all single statements and, where a pair was found, of pairs, whatever they separate.
    `complete` is false when some pairs that could have counted were not tried.
    """

    pairs: list[tuple[int, int, str]]
    tried: set[int]
    complete: bool


def joined(masks: Sequence[int], target: int, *, most: int) -> Joined:
    """The conjunctions and alternatives of two of `masks` that are true of just the `target` machines.

    Only what is true of all of them can be a part of such a conjunction, and only what is true of no others a part of
    an alternative; of either kind the first `most` are paired. For the chance of finding anything, pairs that would
    separate other machines count as well: of the first `most` masks, those that could have been parts first.
    """
    around = [mask for mask in masks if mask & target == target]
    within = [mask for mask in masks if mask | target == target]
    found = [(a, b, "and") for a, b in combinations(around[:most], 2) if a & b == target]
    found += [(a, b, "or") for a, b in combinations(within[:most], 2) if a | b == target]
    if not found:
        return Joined([], set(masks), max(len(around), len(within)) <= most)
    tried = {*masks, target}
    useful = dict.fromkeys([*around[:most], *within[:most], *masks])
    for first, second in combinations(list(useful)[:most], 2):
        tried |= {first & second, first | second}
    return Joined(found, tried, len(masks) <= most)


def by_chance(separable: Iterable[int], blocks: Sequence[int], chosen: int) -> tuple[float, int]:
    """The exact p-value of a separation, and the number of ways to choose the machines it rests on.

    Under the null hypothesis the `chosen` blocks that changed are any of the `blocks` with the same probability
    (Fisher's randomisation: The Design of Experiments, 1935). The statistic is whether any of the statements tried
    separates them, so the p-value is the share of choices that some statement separates: all statements tried are
    counted, however alike they are (the single-step correction of Westfall and Young, Resampling-Based Multiple
    Testing, 1993). Machines are bits; `blocks` are disjoint sets of machines that can only change together.
    """
    ways = math.comb(len(blocks), chosen)
    separated = set()
    for mask in set(separable):
        whole = _whole_blocks(mask, blocks)
        if whole is not None and whole.bit_count() == chosen:
            separated.add(whole)
    return len(separated) / ways, ways


def _whole_blocks(mask: int, blocks: Sequence[int]) -> int | None:
    """The blocks of which a set of machines consists, as bits; None when it cuts one."""
    whole = 0
    for place, block in enumerate(blocks):
        part = mask & block
        if part == block:
            whole |= 1 << place
        elif part:
            return None
    return whole


# Pairs are formed of this many different separations at most: their number goes with its square.
_MOST_PAIRED = 300
_MOST_LISTED = 10


@dataclass(frozen=True)
class _Sides:
    """The machines of one question, changed ones first, and where each machine's bit is."""

    question: Question
    changed: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]:
        return self.changed + self.others

    @property
    def target(self) -> int:
        return (1 << len(self.changed)) - 1


def explain(
    verdicts: Mapping[str, StatisticalVerdict | str],
    facts: Mapping[str, Facts | None],
    *,
    suspects: Sequence[str] = SUSPECTS,
    ignored: Collection[str] = NAMES,
) -> tuple[Explanation, ...]:
    """One answer for each question that the machines' verdicts raise; none when nothing changed.

    `facts` are those of each machine by name: truths, numbers (sizes in bytes), texts, versions, and sets of words
    such as CPU flags. `suspects` are named first among facts that separate the machines alike. Virtual machines,
    machines without facts, and inconclusive verdicts are no evidence; the answer says which they were. ValueError for
    a text that is no verdict.
    """
    judged = {name: StatisticalVerdict(verdicts[name]) for name in sorted(verdicts)}
    tidied = {name: tidy(facts.get(name)) for name in judged}
    reasons = {name: _no_evidence(judged[name], tidied[name]) for name in judged}
    left_out = tuple((name, reason) for name, reason in reasons.items() if reason)
    kept = {
        verdict: tuple(name for name, reason in reasons.items() if not reason and judged[name] is verdict)
        for verdict in StatisticalVerdict
    }
    return tuple(_answer(sides, tidied, left_out, suspects=suspects, ignored=ignored) for sides in _questions(kept))


def _no_evidence(verdict: StatisticalVerdict, facts: Facts) -> str:
    if verdict is StatisticalVerdict.INCONCLUSIVE:
        return "inconclusive"
    if not facts:
        return "no facts"
    return "virtual" if is_guest(facts) else ""


def _questions(kept: Mapping[StatisticalVerdict, tuple[str, ...]]) -> list[_Sides]:
    regressed, improved, unchanged = (
        kept[verdict]
        for verdict in (StatisticalVerdict.REGRESSED, StatisticalVerdict.IMPROVED, StatisticalVerdict.UNCHANGED)
    )
    split = [_Sides(Question.SPLIT, regressed, improved)] if regressed and improved else []
    if split and not unchanged:
        # Here "regressed against the rest" is the same question.
        return split
    found = []
    if regressed:
        found.append(_Sides(Question.REGRESSED, regressed, improved + unchanged))
    if improved:
        found.append(_Sides(Question.IMPROVED, improved, regressed + unchanged))
    return found + split


def _answer(
    sides: _Sides,
    facts: Mapping[str, Facts],
    left_out: tuple[tuple[str, str], ...],
    *,
    suspects: Sequence[str],
    ignored: Collection[str],
) -> Explanation:
    if not sides.others:
        return Explanation(sides.question, Outcome.NO_CONTRAST, FactEvidence(sides.changed, (), left_out))
    known = statements([facts[name] for name in sides.machines], ignored=ignored, suspects=suspects)
    evidence = FactEvidence(sides.changed, sides.others, left_out, known.unknown)
    said, target = known.by_machines, sides.target
    if target in said:
        conditions, complete, tried = [Condition((said[target],))], True, set(said)
    else:
        found = joined(list(said), target, most=_MOST_PAIRED)
        conditions = [Condition((said[a], said[b]), word) for a, b, word in found.pairs]
        complete, tried = found.complete, found.tried
    if not conditions:
        return Explanation(
            question=sides.question,
            outcome=Outcome.NONE,
            evidence=evidence,
            tried=len(said) // 2,
            complete=complete,
            contradiction=_contradiction(sides, facts),
        )
    blocks = _blocks(sides, facts)
    chance, ways = by_chance(tried, blocks, sum(1 for block in blocks if block & target))
    return Explanation(
        question=sides.question,
        outcome=Outcome.SEVERAL if len(conditions) > 1 or conditions[0].alike else Outcome.ONE,
        evidence=evidence,
        conditions=tuple(conditions[:_MOST_LISTED]),
        found=len(conditions),
        chance=chance,
        ways=ways,
        tried=len(said) // 2,
        complete=complete,
    )


def _blocks(sides: _Sides, facts: Mapping[str, Facts]) -> list[int]:
    """Machines of one microarchitecture with one verdict are one piece of evidence, however many they are."""
    together: dict[object, int] = {}
    for place, name in enumerate(sides.machines):
        uarch = facts[name].get("uarch")
        key = ("uarch", uarch) if isinstance(uarch, str) and uarch else ("machine", name)
        together[key] = together.get(key, 0) | 1 << place
    blocks = []
    for block in together.values():
        if block & sides.target in (0, block):
            blocks.append(block)
        else:
            blocks += [1 << place for place in range(block.bit_length()) if block >> place & 1]
    return blocks


def _contradiction(sides: _Sides, facts: Mapping[str, Facts]) -> tuple[str, str] | None:
    """A changed machine and another that is the same in all that is known of both."""
    both = product(sides.changed, sides.others)
    return next(((one, other) for one, other in both if are_alike(facts[one], facts[other])), None)
