"""Facts as statements that hold on some machines."""

import math
from collections.abc import Sequence

import pytest

from server.stats.explanation.machine_facts import NAMES, SUSPECTS, Facts, statements


def said(*machines: Facts, suspects: Sequence[str] = SUSPECTS) -> dict[int, list[str]]:
    found = statements(machines, ignored=NAMES, suspects=suspects).by_machines
    return {mask: [one.text for one in group] for mask, group in found.items()}


def test_flags_are_present_or_absent() -> None:
    assert said({"flags": frozenset({"fpu", "fsrm"})}, {"flags": frozenset({"fpu"})}) == {1: ["fsrm"], 2: ["no fsrm"]}


def test_flags_may_be_a_list_and_other_sets_are_named() -> None:
    assert said({"flags": ["fsrm"]}, {"flags": []}) == {1: ["fsrm"], 2: ["no fsrm"]}
    assert said({"drivers": {"idle"}}, {"drivers": set()}) == {1: ["idle in drivers"], 2: ["no idle in drivers"]}


def test_sizes_have_a_threshold_between_neighbours() -> None:
    found = said({"llc_bytes": 1 << 25}, {"llc_bytes": 1 << 28}, {"llc_bytes": 1 << 29})
    assert found == {
        0b110: ["llc_bytes >= 256 MiB"],
        0b001: ["llc_bytes < 256 MiB"],
        0b100: ["llc_bytes >= 512 MiB"],
        0b011: ["llc_bytes < 512 MiB"],
    }


def test_numbers_that_are_no_sizes_stay_as_they_are() -> None:
    assert said({"nodes": 1}, {"nodes": 2})[2] == ["nodes >= 2"]
    assert said({"page_bytes": 4096}, {"page_bytes": 65537})[2] == ["page_bytes >= 65,537"]
    assert said({"ghz": 2.5}, {"ghz": 3})[1] == ["ghz < 3"]


def test_truths_and_texts_are_told_both_ways() -> None:
    assert said({"smt": True}, {"smt": False}) == {1: ["smt is true"], 2: ["smt is false"]}
    found = said({"preempt": "full"}, {"preempt": "none"})
    assert found == {1: ["preempt is full", "preempt is not none"], 2: ["preempt is none", "preempt is not full"]}


def test_versions_are_ordered_as_versions() -> None:
    assert said({"gcc": "9.5.0"}, {"gcc": "12.2"}) == {1: ["gcc < 12.2"], 2: ["gcc >= 12.2"]}
    assert said({"gcc": "13.1"}, {"gcc": "13.1.0"}) == {}
    assert said({"gcc": "0.0"}, {"gcc": "v0.1"})[2] == ["gcc >= v0.1"]


def test_numbers_that_differ_are_written_differently() -> None:
    assert said({"ghz": 2.4}, {"ghz": 2.4000001})[2] == ["ghz >= 2.4000001"]


def test_long_options_that_differ_at_their_end_are_told_apart() -> None:
    found = said({"option": "x" * 70 + "1"}, {"option": "x" * 70 + "2"})
    assert found[1][0] != found[2][0]
    assert len(found[1][0]) < 80


def test_facts_that_separate_alike_stand_together_with_the_suspected_first() -> None:
    flags = frozenset({"avx2", "erms", "fsrm"})
    assert said({"flags": flags}, {"flags": frozenset()})[1] == ["fsrm", "erms", "avx2"]
    assert said({"flags": flags}, {"flags": frozenset()}, suspects=["avx2"])[1] == ["avx2", "erms", "fsrm"]


def test_what_all_or_none_have_is_no_statement() -> None:
    assert said({"flags": ["fpu"], "smt": True, "nodes": 2}, {"flags": ["fpu"], "smt": True, "nodes": 2}) == {}


def test_names_of_machines_explain_nothing() -> None:
    assert said({"uarch": "zen3", "model": 1, "hostname": "a"}, {"uarch": "zen5", "model": 2, "hostname": "b"}) == {}


@pytest.mark.parametrize("other", [None, math.nan, 1e19, 10**400, "", "many", True, {"a": 1}, [1], b"x"])
def test_a_fact_that_a_machine_does_not_tell_in_kind_is_unknown(other: object) -> None:
    found = statements([{"nodes": 2}, {"nodes": other}], ignored=NAMES, suspects=SUSPECTS)
    assert (found.by_machines, found.unknown) == ({}, ("nodes",))


def test_a_fact_missing_on_one_machine_is_unknown() -> None:
    assert statements([{"nodes": 2}, {}], ignored=NAMES, suspects=SUSPECTS).unknown == ("nodes",)


def test_no_machines_say_nothing() -> None:
    assert said() == {}


def test_long_or_broken_words_become_short_lines() -> None:
    (text,) = said({"flags": ["a\nb" * 99]}, {"flags": []})[1]
    assert len(text) < 70
    assert "\n" not in text
