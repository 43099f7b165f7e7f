"""Explanations of a finding: the facts that its machines showed in its boots, and what separates them."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from server.detection.findings.explanation import explain_finding, explained
from server.detection.models import Finding
from server.lab.hosts.probes import keep_facts_of_machine
from server.lab.models import Boot, Machine
from tests.builders import build_case, build_comparison, tell_boots
from tests.detection.lifecycle.findings import DOWN, SAME, UNSURE, UP, Verdicts, candidate
from tests.detection.measured import physical, virtual

pytestmark = pytest.mark.django_db

OLD = {"flags": ["erms", "rep_good"], "llc_bytes": 32 << 20, "page_bytes": 4096, "preemption": "none"}
NEW = {"flags": ["erms", "rep_good", "fsrm"], "llc_bytes": 32 << 20, "page_bytes": 4096, "preemption": "none"}


def show(facts: dict[str, Any]) -> None:
    """The machines of these names tell these facts in their boots of the base kernel, and others in the patched one."""
    for name, told in facts.items():
        tell_boots(Boot.objects.filter(session__machine__name=name, arm=Boot.Arm.BASE), facts=told)
        tell_boots(Boot.objects.filter(session__machine__name=name, arm=Boot.Arm.PATCHED), facts={"flags": ["sse"]})


def found(verdicts: Verdicts, facts: dict[str, Any], *, is_virtual: bool = False) -> Finding:
    """An explained finding of machines with these facts."""
    finding = candidate(verdicts)
    finding.virtual = is_virtual
    finding.save()
    show(facts)
    explain_finding(finding)
    finding.refresh_from_db()
    return finding


def test_the_founding_case_names_the_flag_that_the_regressed_machines_lack() -> None:
    one, two, three = physical("milan-1", "zen3"), physical("milan-2", "zen3"), physical("turin", "zen5")
    verdicts = {one: {"copy": UP, "cold": UP}, two: {"copy": UP, "cold": UP}, three: {"copy": DOWN, "cold": DOWN}}
    finding = found(verdicts, {"milan-1": OLD, "milan-2": OLD, "turin": NEW})
    assert finding.kind == Finding.Kind.SPLIT
    (row,) = finding.explanations
    assert (row["conditions"], row["alike"]) == (["no fsrm"], [])
    assert (row["question"], row["outcome"], row["cells"]) == ("regressed against improved", "one", 2)
    assert (row["changed"], row["others"]) == (["milan-1", "milan-2"], ["turin"])
    assert row["text"].startswith("True of all machines that regressed and of none of the improved ones: no fsrm")


def test_facts_that_separate_alike_are_named_beside_the_first() -> None:
    finding = candidate({physical("m1", "zen3"): {"copy": UP}, physical("m2", "zen5"): {"copy": SAME}})
    show({"m1": {"flags": []}, "m2": {"flags": ["erms", "fsrm", "zzz"]}})
    (row,), _counters = explained(finding)
    assert (row["outcome"], row["conditions"], row["alike"]) == ("several", ["no fsrm"], ["no erms", "no zzz"])


def test_facts_are_those_of_the_boots_and_not_of_today() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen5")
    finding = found({one: {"copy": UP}, two: {"copy": SAME}}, {"m1": OLD, "m2": NEW})
    before = explained(finding)
    for machine in Machine.objects.all():
        keep_facts_of_machine(machine, {"flags": ["erms"], "preemption": "full"})
    assert explained(finding) == before == (finding.explanations, finding.counters)
    assert finding.explanations[0]["conditions"] == ["no fsrm"]


KINDS: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"llc_bytes": 32 << 20}, {"llc_bytes": 16 << 20}, "llc_bytes >= 32 MiB"),
    ({"page_bytes": 65536}, {"page_bytes": 4096}, "page_bytes >= 64 KiB"),
    ({"preemption": "full"}, {"preemption": "none"}, "preemption is full"),
    ({"microcode": "0xa2"}, {"microcode": "0xa1"}, "microcode is 0xa2"),
    (
        {"alternatives": {"chosen_by": {}, "detected": ["LSE atomic instructions"]}},
        {"alternatives": {"chosen_by": {}, "detected": []}},
        "LSE atomic instructions",
    ),
)


def test_each_kind_of_fact_can_explain() -> None:
    finding = candidate({physical("m1", "a"): {"copy": UP}, physical("m2", "b"): {"copy": SAME}})
    for one, two, condition in KINDS:
        show({"m1": one, "m2": two})
        (row,), _counters = explained(finding)
        assert condition in row["conditions"][0]


def test_cases_with_differing_machines_have_explanations_of_their_own() -> None:
    one, two, three = physical("m1", "zen3"), physical("m2", "zen4"), physical("m3", "zen5")
    verdicts = {
        one: {"copy": UP, "fork": SAME, "mmap": UP},
        two: {"copy": UP, "fork": UP, "mmap": UNSURE},
        three: {"copy": SAME, "fork": SAME, "mmap": SAME},
    }
    old, small = OLD | {"llc_bytes": 16 << 20}, OLD
    finding = found(verdicts, {"m1": old, "m2": small, "m3": NEW})
    told = [(row["case"], row["changed"], row["others"]) for row in finding.explanations]
    # What the third case says of its machines is a part of what the first one says.
    assert told == [("copy", ["m1", "m2"], ["m3"]), ("fork", ["m2"], ["m1", "m3"])]


def test_an_unchanged_finding_and_machines_without_facts_explain_nothing() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen5")
    assert found({one: {"copy": SAME}, two: {"copy": SAME}}, {"m1": OLD, "m2": NEW}).explanations == []
    assert found({one: {"copy": UP}, two: {"copy": SAME}}, {"m1": {}, "m2": {}}).explanations == []


def test_guests_are_compared_among_themselves_where_they_are_judged(settings: Settings) -> None:
    settings.VIRTUAL_VERDICTS = True
    one, two = virtual("m1", "haswell"), virtual("m2", "nehalem")
    guest = {"virtual": True, "hypervisor": "tcg"}
    told = {"m1": guest | {"flags": "erms hypervisor"}, "m2": guest | {"flags": "hypervisor"}}
    finding = found({one: {"copy": UP}, two: {"copy": SAME}}, told, is_virtual=True)
    assert finding.explanations[0]["conditions"] == ["erms"]
    finding.virtual = False
    assert explained(finding)[0] == []


def test_kinds_of_cores_of_one_machine_are_told_apart() -> None:
    machine = physical("hybrid", "cix-p1")
    little = machine.core_types.create(name="a520", cpus="8-11")
    finding = candidate({machine: {"copy": DOWN}})
    session = finding.trial.sessions.get() if finding.trial else None
    assert session is not None
    build_comparison(session, SAME, case=build_case("copy"), core_type=little)
    tell_boots(Boot.objects.filter(session=session), facts=OLD)
    (row,), _counters = explained(finding)
    assert (row["changed"], row["others"]) == (["hybrid (all cores)"], ["hybrid (a520 cores)"])
    assert row["conditions"] == ["core type is all"]


def test_facts_of_another_shape_do_no_harm() -> None:
    finding = candidate({physical("m1", "a"): {"copy": UP}, physical("m2", "b"): {"copy": SAME}})
    for told in ({"flags": 7, "alternatives": 3}, {"alternatives": {"detected": 1}}):
        show({"m1": told, "m2": NEW})
        assert isinstance(explained(finding)[0], list)
