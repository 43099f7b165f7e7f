"""Facts of machines made comparable."""

import math

import pytest

from server.stats.explanation.machine_facts import are_alike, is_guest, tidy


def test_flags_in_one_text_become_a_set() -> None:
    assert tidy({"flags": " fpu  fsrm\n"}) == {"flags": frozenset({"fpu", "fsrm"})}


def test_memory_is_told_in_whole_gib() -> None:
    assert tidy({"memory_kb": 263_921_188}) == tidy({"memory_kb": 263_921_192}) == {"memory_gib": 252}


@pytest.mark.parametrize("memory", [0, -1, True, None, "much", math.nan, math.inf, 10**400])
def test_memory_that_is_no_size_is_not_told(memory: object) -> None:
    assert tidy({"memory_kb": memory}) == {}


@pytest.mark.parametrize("told", [None, 5, "x", [1], {}, {3: 4}, {"nodes": None}])
def test_what_tells_nothing_is_empty(told: object) -> None:
    assert tidy(told) == {}


@pytest.mark.parametrize(
    "facts",
    [
        {"virtual": True},
        {"virtual": 1},
        {"virtual": "kvm"},
        {"hypervisor": "kvm"},
        {"hypervisor": "unknown", "virtual": False},
        {"flags": "fpu hypervisor"},
        {"flags": ["hypervisor"]},
    ],
)
def test_guests_are_known_in_whatever_form_it_is_told(facts: dict[str, object]) -> None:
    assert is_guest(tidy(facts))


@pytest.mark.parametrize(
    "facts", [{}, {"virtual": False}, {"virtual": "no"}, {"hypervisor": ""}, {"hypervisor": "None"}, {"flags": ["fpu"]}]
)
def test_other_machines_are_no_guests(facts: dict[str, object]) -> None:
    assert not is_guest(tidy(facts))


def test_machines_are_alike_in_all_but_what_is_their_own() -> None:
    one = {"uarch": "zen3", "model": 33, "flags": frozenset({"fpu"}), "hostname": "a", "cmdline": "x"}
    assert are_alike(one, {**one, "hostname": "b", "cmdline": "y"})
    assert not are_alike(one, {**one, "model": 34})
    assert not are_alike(one, {**one, "smt": True})
    assert not are_alike({"flags": frozenset()}, {"flags": frozenset()})


def test_facts_with_names_inside_become_facts_of_their_own() -> None:
    told = {"mitigations": {"retbleed": "Vulnerable", "mds": None}, "nodes": [{"node": 0}, {"node": 0}], "boost": None}
    assert tidy(told) == {"mitigations.retbleed": "Vulnerable", "nodes": 2}
    assert tidy({"nodes": [], "caches": []}) == {"caches": frozenset()}


def test_fingerprints_and_builds_make_no_difference_between_machines() -> None:
    one = tidy({"uarch": "zen3", "fingerprint": "1-a", "kernel_build_id": "aa", "board": {"vendor": "A"}})
    other = tidy({"uarch": "zen3", "fingerprint": "1-b", "kernel_build_id": "bb", "board": {"vendor": "B"}})
    assert are_alike(one, other)
