"""Machines with facts, for the tests of explanations."""

from server.stats import Verdict
from server.stats.explain import Explanation, explain
from server.stats.machines import Facts

REGRESSED, IMPROVED, UNCHANGED, INCONCLUSIVE = (
    Verdict.REGRESSED,
    Verdict.IMPROVED,
    Verdict.UNCHANGED,
    Verdict.INCONCLUSIVE,
)
ZEN3 = frozenset({"fpu", "avx2", "rep_good"})
ZEN5 = ZEN3 | {"avx512f", "erms", "fsrm"}


def machine(uarch: str, flags: frozenset[str], **facts: object) -> Facts:
    return {"uarch": uarch, "virtual": False, "flags": flags, **facts}


def only(verdicts: dict[str, Verdict], facts: dict[str, Facts]) -> Explanation:
    (found,) = explain(verdicts, facts)
    return found
