"""Which facts separate the machines on which something changed."""

import pytest

from server.stats.explanation.machine_facts import Facts
from server.stats.explanation.search import Outcome, Question, explain
from tests.stats.cpus import IMPROVED, INCONCLUSIVE, REGRESSED, UNCHANGED, ZEN3, ZEN5, machine, only


def test_the_founding_case_names_fsrm_and_erms_first_and_that_two_machines_prove_nothing() -> None:
    """One patch made memcpy() of page copies twice as fast on Zen 5 and slower on Zen 3, which lacks both flags."""
    found = only({"zen3": REGRESSED, "zen5": IMPROVED}, {"zen3": machine("zen3", ZEN3), "zen5": machine("zen5", ZEN5)})
    assert (found.question, found.outcome) == (Question.SPLIT, Outcome.SEVERAL)
    assert found.evidence.changed == ("zen3",)
    assert found.conditions[0].text == "no fsrm"
    assert found.conditions[0].alike == ("no erms", "no avx512f")
    assert (found.chance, found.ways) == (1.0, 2)
    assert found.text == (
        "True of all machines that regressed and of none of the improved ones: "
        "no fsrm (also no erms, no avx512f: no machine here tells them apart); "
        "with 1 against 1 machines some fact always does this, so it proves nothing."
    )


def test_more_machines_leave_fewer_facts_and_less_to_chance() -> None:
    facts = {
        "a": machine("zen2", ZEN3),
        "b": machine("zen3", ZEN3 | {"erms"}),
        "c": machine("broadwell", ZEN3 | {"erms"}),
        "d": machine("icelake", ZEN5),
        "e": machine("zen4", ZEN5 - {"avx512f"}),
        "f": machine("zen5", ZEN5),
    }
    verdicts = dict(zip("abcdef", [REGRESSED] * 3 + [UNCHANGED] * 3, strict=True))
    found = only(verdicts, facts)
    assert (found.question, found.conditions[0].text, found.conditions[0].alike) == (
        Question.REGRESSED,
        "no fsrm",
        (),
    )
    assert found.outcome is Outcome.ONE
    assert found.chance == pytest.approx(2 / 20)
    assert "chance alone finds such facts in 10 % of cases" in found.text


def test_sizes_explain_what_improved() -> None:
    facts = {str(size): machine(f"u{size}", ZEN3, llc_bytes=size << 20) for size in (8, 16, 32, 64, 128)}
    verdicts = {str(size): IMPROVED if size >= 32 else UNCHANGED for size in (8, 16, 32, 64, 128)}
    found = only(verdicts, facts)
    assert (found.question, found.conditions[0].text) == (Question.IMPROVED, "llc_bytes >= 32 MiB")


def test_two_facts_together_explain_where_none_does_alone() -> None:
    facts = {
        "neither": machine("a", frozenset({"fpu"})),
        "erms": machine("b", frozenset({"erms"})),
        "fsrm": machine("c", frozenset({"fsrm"})),
        "both": machine("d", frozenset({"erms", "fsrm"})),
    }
    verdicts = {name: REGRESSED if name == "both" else UNCHANGED for name in facts}
    texts = {condition.text for condition in only(verdicts, facts).conditions}
    assert "fsrm and erms" in texts
    verdicts = {name: UNCHANGED if name == "neither" else IMPROVED for name in facts if name != "both"}
    facts["neither"] = machine("a", frozenset())
    assert "fsrm or erms" in {condition.text for condition in only(verdicts, facts).conditions}


def test_equally_small_explanations_are_all_listed() -> None:
    facts = {
        "a": machine("a", frozenset({"p", "q", "r"})),
        "b": machine("b", frozenset({"p"})),
        "c": machine("c", frozenset({"q"})),
        "d": machine("d", frozenset({"r"})),
    }
    found = only({"a": REGRESSED, "b": UNCHANGED, "c": UNCHANGED, "d": UNCHANGED}, facts)
    assert found.outcome is Outcome.SEVERAL
    assert {"p and q", "p and r", "q and r"} <= {condition.text for condition in found.conditions}
    assert f"one of {found.found - 1} other explanations as small" in found.text


def test_machines_of_equal_facts_and_different_verdicts_have_no_explanation() -> None:
    facts = {"a": machine("zen3", ZEN3), "b": machine("zen3", ZEN3), "c": machine("zen5", ZEN5)}
    found = only({"a": REGRESSED, "b": UNCHANGED, "c": UNCHANGED}, facts)
    assert (found.outcome, found.conditions, found.chance) == (Outcome.NONE, (), None)
    assert found.contradiction == ("a", "b")
    assert found.text.endswith(": a and b have equal facts and different verdicts.")


def test_facts_that_do_not_separate_are_said_not_to() -> None:
    facts = {name: machine(name, frozenset(flags)) for name, flags in zip("abcd", ("", "xy", "x", "y"), strict=True)}
    found = only({"a": REGRESSED, "b": REGRESSED, "c": UNCHANGED, "d": UNCHANGED}, facts)
    assert (found.outcome, found.contradiction) == (Outcome.NONE, None)
    assert found.text == "No known fact and no two of them separate the machines that regressed from the others."


def test_machines_that_are_no_evidence_are_left_out_and_named() -> None:
    facts: dict[str, Facts] = {
        "zen3": machine("zen3", ZEN3),
        "zen5": machine("zen5", ZEN5),
        "guest": {**machine("zen4", ZEN3), "virtual": True},
        "hidden": machine("zen4", ZEN5 | {"hypervisor"}),
        "unsure": machine("zen4", ZEN3),
        "empty": {},
    }
    verdicts = dict.fromkeys(facts, UNCHANGED) | {"zen3": REGRESSED, "unsure": INCONCLUSIVE} | {"absent": REGRESSED}
    evidence = only(verdicts, facts).evidence
    assert (evidence.changed, evidence.others) == (("zen3",), ("zen5",))
    assert dict(evidence.left_out) == {
        "absent": "no facts",
        "empty": "no facts",
        "guest": "virtual",
        "hidden": "virtual",
        "unsure": "inconclusive",
    }


def test_machines_of_one_microarchitecture_are_one_piece_of_evidence() -> None:
    facts = {f"zen3-{i}": machine("zen3", ZEN3) for i in range(5)} | {
        f"zen5-{i}": machine("zen5", ZEN5) for i in range(5)
    }
    found = only({name: REGRESSED if name < "zen4" else UNCHANGED for name in facts}, facts)
    assert (found.chance, found.ways) == (1.0, 2)


def test_a_mixed_fleet_raises_all_three_questions() -> None:
    facts = {"a": machine("a", ZEN3), "b": machine("b", ZEN5), "c": machine("c", ZEN3 | {"erms"})}
    found = explain({"a": REGRESSED, "b": IMPROVED, "c": UNCHANGED}, facts)
    assert [one.question for one in found] == [Question.REGRESSED, Question.IMPROVED, Question.SPLIT]
    assert [one.conditions[0].text for one in found] == ["no erms", "fsrm", "no fsrm"]


def test_without_other_machines_there_is_no_contrast() -> None:
    found = only({"a": REGRESSED}, {"a": machine("a", ZEN3)})
    assert found.outcome is Outcome.NO_CONTRAST
    assert found.text == "No machine with another verdict is there to compare with the 1 that regressed."


def test_without_changes_there_is_nothing_to_explain() -> None:
    assert explain({}, {}) == ()
    assert explain({"a": UNCHANGED, "b": INCONCLUSIVE}, {"a": machine("a", ZEN3)}) == ()
