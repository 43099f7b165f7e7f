"""Explanations of what is scarce, odd or plenty."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats import StatisticalVerdict
from server.stats.explanation.machine_facts import Facts
from server.stats.explanation.search import Outcome, explain
from tests.stats.cpus import IMPROVED, REGRESSED, UNCHANGED, ZEN3, ZEN5, machine, only


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"uarch": "zen3"}, {"uarch": "zen5"}),
        ({"uarch": "zen3", "stepping": 1}, {"uarch": "zen3", "stepping": 2}),
        ({"uarch": "zen3", "nodes": 2}, {"uarch": "zen3"}),
        ({"uarch": "zen3", "nodes": 2}, {"uarch": "zen3", "nodes": "many"}),
        ({}, {}),
    ],
)
def test_machines_that_may_differ_are_not_called_equal(one: Facts, other: Facts) -> None:
    """That no usable fact separates them does not make them the same."""
    found = only({"a": REGRESSED, "b": UNCHANGED}, {"a": {"flags": ["x"], **one}, "b": {"flags": ["x"], **other}})
    assert (found.outcome, found.contradiction) == (Outcome.NONE, None)
    assert "equal facts" not in found.text
    assert ("nodes" in one) == found.text.endswith("; not told by all of them: nodes.")


def test_a_few_kilobytes_of_memory_explain_no_difference_between_twins() -> None:
    twins = {name: machine("zen3", ZEN3, memory_kb=263_921_188 + place) for place, name in enumerate("ab")}
    found = only({"a": REGRESSED, "b": UNCHANGED}, twins)
    assert (found.outcome, found.contradiction) == (Outcome.NONE, ("a", "b"))


def test_a_condition_of_two_facts_is_found_among_hundreds_that_cannot_be_part_of_it() -> None:
    held = np.random.default_rng(1).integers(0, 2, (20, 200)).astype(bool)
    facts = {
        f"m{i:02d}": machine(
            f"u{i}",
            frozenset(f"a{j:03d}" for j in range(200) if held[i, j])
            | frozenset(["zz1"] if i < 8 else [])
            | frozenset(["zz2"] if 4 <= i < 14 else []),
        )
        for i in range(20)
    }
    verdicts = {name: REGRESSED if 4 <= i < 8 else UNCHANGED for i, name in enumerate(facts)}
    found = only(verdicts, facts)
    assert "zz1 and zz2" in {condition.text for condition in found.conditions}


@pytest.mark.parametrize("told", [None, 5, "x", [1], {}, {3: 4}])
def test_what_is_no_collection_of_facts_is_no_evidence(told: Any) -> None:
    found = only({"a": REGRESSED, "b": UNCHANGED}, {"a": machine("a", ZEN3), "b": told})
    assert found.evidence.left_out == (("b", "no facts"),)


def test_verdicts_may_be_texts_but_not_any() -> None:
    facts = {"a": machine("a", ZEN3), "b": machine("b", ZEN5)}
    assert explain({"a": "regressed", "b": "unchanged"}, facts) == explain({"a": REGRESSED, "b": UNCHANGED}, facts)
    with pytest.raises(ValueError, match="slower"):
        explain({"a": "slower"}, facts)


def test_the_order_of_machines_does_not_matter() -> None:
    facts = {"a": machine("a", ZEN3), "b": machine("b", ZEN5), "c": machine("c", ZEN3 | {"erms"})}
    verdicts = {"a": REGRESSED, "b": IMPROVED, "c": UNCHANGED}
    turned = explain(dict(reversed(verdicts.items())), dict(reversed(facts.items())))
    assert turned == explain(verdicts, facts)


fact_values = st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.none()
any_facts = st.dictionaries(
    st.sampled_from(["flags", "nodes", "smt", "gcc", "uarch", "virtual", "llc_bytes"]),
    fact_values | st.frozensets(st.text(max_size=2), max_size=3) | st.lists(st.integers(), max_size=2),
    max_size=6,
)


@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.tuples(st.sampled_from(StatisticalVerdict), any_facts), max_size=7)
)
def test_no_facts_raise_and_every_answer_holds(fleet: dict[str, tuple[StatisticalVerdict, dict[str, object]]]) -> None:
    verdicts = {name: verdict for name, (verdict, _) in fleet.items()}
    for found in explain(verdicts, {name: facts for name, (_, facts) in fleet.items()}):
        assert found.text.endswith(".")
        assert (found.chance is not None) == bool(found.conditions) == (found.found > 0)
        assert found.chance is None or 1 / found.ways <= found.chance <= 1
        assert len(found.conditions) == min(found.found, 10)


def test_hundreds_of_facts_on_many_machines_take_no_more_than_a_moment() -> None:
    held = np.random.default_rng(7).integers(0, 2, (60, 400)).astype(bool)
    facts = {str(i): machine(f"u{i}", frozenset(f"f{j}" for j in range(400) if held[i, j])) for i in range(60)}
    verdicts = {name: REGRESSED if int(name) < 20 else UNCHANGED for name in facts}
    assert only(verdicts, facts).outcome is Outcome.NONE
