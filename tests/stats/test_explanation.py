"""The sentence of an explanation."""

from dataclasses import replace

from server.stats.explanation import Condition, Evidence, Explanation, Outcome, Question
from server.stats.facts import Statement

FOUND = Explanation(
    question=Question.IMPROVED,
    outcome=Outcome.ONE,
    evidence=Evidence(changed=("a", "b"), others=("c", "d", "e")),
    conditions=(Condition((tuple(Statement(name, name) for name in ("fsrm", "erms")),)),),
    found=1,
    chance=0.1,
    ways=10,
    tried=4,
)


def test_one_explanation_is_told_with_its_equivalents_and_its_chance() -> None:
    assert FOUND.text == (
        "The machines that improved show fsrm (also erms), the others do not; "
        "with 2 against 3 machines chance alone finds such facts in 10 % of cases."
    )


def test_many_equivalent_facts_are_counted() -> None:
    many = Condition((tuple(Statement(name, name) for name in "vwxyz"),))
    assert "show v (also w, x, y and 1 more)," in replace(FOUND, conditions=(many,)).text


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
    assert text.startswith("The machines that regressed show fsrm (also erms), the improved ones do not;")
