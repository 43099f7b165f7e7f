"""Why a change shows on some machines and not on others: the smallest facts that separate them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from server.stats.cells import Verdict
from server.stats.chance import by_chance, joined
from server.stats.explanation import Condition, Evidence, Explanation, Outcome, Question
from server.stats.facts import SUSPECTS, statements
from server.stats.machines import NAMES, Facts, are_alike, is_guest, tidy

__all__ = ["Condition", "Evidence", "Explanation", "Outcome", "Question", "explain"]

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
    verdicts: Mapping[str, Verdict | str],
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
    judged = {name: Verdict(verdicts[name]) for name in sorted(verdicts)}
    tidied = {name: tidy(facts.get(name)) for name in judged}
    reasons = {name: _no_evidence(judged[name], tidied[name]) for name in judged}
    left_out = tuple((name, reason) for name, reason in reasons.items() if reason)
    kept = {
        verdict: tuple(name for name, reason in reasons.items() if not reason and judged[name] is verdict)
        for verdict in Verdict
    }
    return tuple(_answer(sides, tidied, left_out, suspects=suspects, ignored=ignored) for sides in _questions(kept))


def _no_evidence(verdict: Verdict, facts: Facts) -> str:
    if verdict is Verdict.INCONCLUSIVE:
        return "inconclusive"
    if not facts:
        return "no facts"
    return "virtual" if is_guest(facts) else ""


def _questions(kept: Mapping[Verdict, tuple[str, ...]]) -> list[_Sides]:
    regressed, improved, unchanged = (
        kept[verdict] for verdict in (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED)
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
        return Explanation(sides.question, Outcome.NO_CONTRAST, Evidence(sides.changed, (), left_out))
    known = statements([facts[name] for name in sides.machines], ignored=ignored, suspects=suspects)
    evidence = Evidence(sides.changed, sides.others, left_out, known.unknown)
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
