"""The sentence of an explanation."""

from dataclasses import replace

from server.stats.explanation.machine_facts import Statement
from server.stats.explanation.search import Condition, Explanation, FactEvidence, Outcome, Question

FOUND = Explanation(
    question=Question.IMPROVED,
    outcome=Outcome.ONE,
    evidence=FactEvidence(changed=("a", "b"), others=("c", "d", "e")),
    conditions=(Condition((tuple(Statement(name, name) for name in ("fsrm", "erms")),)),),
    found=1,
    chance=0.1,
    ways=10,
    tried=4,
)


def test_one_explanation_is_told_with_its_equivalents_and_its_chance() -> None:
    assert FOUND.text == (
        "True of all machines that improved and of none of the others: fsrm (also erms: no machine here tells them "
        "apart); "
        "with 2 against 3 machines chance alone finds such facts in 10 % of cases."
    )


def test_many_equivalent_facts_are_counted() -> None:
    many = Condition((tuple(Statement(name, name) for name in "vwxyz"),))
    suspected = Condition((tuple(Statement(name, name, name in "vw") for name in "vwxyz"),))
    assert ": v (also w and 3 other facts: no" in replace(FOUND, conditions=(suspected,)).text
    assert ": v (also w, x, y and 1 other fact: no" in replace(FOUND, conditions=(many,)).text


def test_what_the_changed_machines_lack_cannot_be_read_as_what_the_others_lack() -> None:
    lacking = Condition(((Statement("fsrm", "no fsrm"),),))
    text = replace(FOUND, question=Question.SPLIT, conditions=(lacking,)).text
    assert text.startswith("True of all machines that regressed and of none of the improved ones: no fsrm; ")


def test_two_facts_are_joined_by_their_word() -> None:
    both = Condition(((Statement("fsrm", "no fsrm"), Statement("x", "x")), (Statement("erms", "no erms"),)), "and")
    assert (both.text, both.alike) == ("no fsrm and no erms", ("x",))


def test_other_explanations_as_small_are_counted() -> None:
    several = replace(FOUND, outcome=Outcome.SEVERAL, found=3)
    assert ", or one of 2 other explanations as small;" in several.text


def test_a_separation_that_always_succeeds_proves_nothing() -> None:
    assert "some fact always does this, so it proves nothing" in replace(FOUND, chance=1.0).text


def test_a_split_is_told_from_the_side_that_regressed() -> None:
    text = replace(FOUND, question=Question.SPLIT).text
    assert text.startswith("True of all machines that regressed and of none of the improved ones: fsrm (also erms: ")


def test_rare_and_frequent_chances_are_written_as_bounds() -> None:
    written = [replace(FOUND, chance=chance).text for chance in (1e-9, 0.005, 0.016, 0.9, 0.9999)]
    expected = ["less than 0.01 %", "0.5 %", "2 %", "90 %", "more than 99.5 %"]
    assert all(f" in {text} of cases" in sentence for text, sentence in zip(expected, written, strict=True))


def test_another_wording_of_the_same_fact_is_no_other_fact() -> None:
    part = (Statement("preempt", "preempt is full"), Statement("preempt", "preempt is not none"))
    assert Condition((part,)).alike == ()


def test_a_search_that_was_cut_short_says_so() -> None:
    assert "in at least 10 % of cases" in replace(FOUND, complete=False).text
    nothing = replace(FOUND, outcome=Outcome.NONE, conditions=(), found=0, chance=None, complete=False)
    assert nothing.text.startswith("No known fact and none of the pairs tried separate the machines")


def test_facts_that_could_not_be_compared_are_named_where_nothing_separates() -> None:
    evidence = replace(FOUND.evidence, unknown_facts=("smt", "nodes"))
    nothing = replace(FOUND, outcome=Outcome.NONE, conditions=(), found=0, chance=None, evidence=evidence)
    assert nothing.text.endswith(" from the others; not told by all of them: smt, nodes.")
