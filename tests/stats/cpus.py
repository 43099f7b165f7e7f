"""Machines with facts, for the tests of explanations."""

from server.stats import StatisticalVerdict
from server.stats.explanation.machine_facts import Facts
from server.stats.explanation.search import Explanation, explain

REGRESSED, IMPROVED, UNCHANGED, INCONCLUSIVE = (
    StatisticalVerdict.REGRESSED,
    StatisticalVerdict.IMPROVED,
    StatisticalVerdict.UNCHANGED,
    StatisticalVerdict.INCONCLUSIVE,
)
ZEN3 = frozenset({"fpu", "avx2", "rep_good"})
ZEN5 = ZEN3 | {"avx512f", "erms", "fsrm"}


def machine(uarch: str, flags: frozenset[str], **facts: object) -> Facts:
    return {"uarch": uarch, "virtual": False, "flags": flags, **facts}


def only(verdicts: dict[str, StatisticalVerdict], facts: dict[str, Facts]) -> Explanation:
    (found,) = explain(verdicts, facts)
    return found
