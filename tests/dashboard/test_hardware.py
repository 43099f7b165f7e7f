"""A machine's parts on its page, from facts as the probe tells them and from any other."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.probe import facts_of
from tidemark_agent.probe.tree import Texts

from server.dashboard.rows.machine_facts import _WRITERS, differing_facts, lines, readable_facts
from server.lab.attempts.boots import note_machine
from tests.agent.probe.machines import amd, arm
from tests.agent.probe.machines.parts import Files
from tests.builders import build_machine
from tests.dashboard.conftest import Reader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(["level", "type", "bytes", "shared", "node", "kind", "cpus", "chosen_by", "kb", "flags"]),
            inside,
            max_size=6,
        )
    ),
    max_leaves=12,
)


def told(files: Files) -> dict[str, Any]:
    facts: dict[str, Any] = _listed(facts_of(Texts(files)).as_json())
    return facts


def _listed(value: Any) -> Any:
    """As JSON brings it: tuples are lists."""
    if isinstance(value, dict):
        return {name: _listed(one) for name, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def titled(files: Files) -> dict[str, tuple[str, ...]]:
    return {fact.title: fact.lines or (fact.text,) for fact in readable_facts(told(files))}


def test_parts_of_a_machine_are_lines_for_people() -> None:
    facts = titled(amd.zen5_with_cxl())
    assert facts["NUMA nodes"] == (
        "node 0: dram, 377.7 GiB, CPUs 0-1, distances 10 50",
        "node 1: cxl, 125.9 GiB, no CPUs, distances 255 10",
    )
    assert facts["copies and clears by"] == ("rep_good, erms, fsrm, no fzrm, fsrs, no fsrc",)
    assert facts["page size"] == ("4 KiB",)
    assert "fingerprint_parts" not in facts


def test_caches_mitigations_and_core_types_are_told() -> None:
    facts = titled(amd.zen3())
    assert facts["caches"][0] == "L1d: 2 x 32 KiB, 8 ways, lines of 64 B, CPUs 0,2 | 1,3"
    assert facts["mitigations"][0].startswith("retbleed: Mitigation: untrained return thunk")
    assert facts["mitigations"][-1] == "not affected: meltdown"
    assert (facts["governor"], facts["boost"]) == (("schedutil",), ("yes",))
    assert titled(arm.big_little())["CPUs by kind"][1] == "CPUs 4-7: cortex-a76, 0x413fd0b0, and dcpop"


@given(st.sampled_from(sorted(_WRITERS)), JSON)
def test_facts_of_any_shape_never_break_a_page(name: str, value: Any) -> None:
    assert all(isinstance(line, str) for line in lines(name, value))
    readable_facts({name: value})


@pytest.mark.django_db
def test_page_shows_the_parts_and_when_they_changed(reader: Reader) -> None:
    machine = build_machine("bench-1", "zen5")
    before = told(amd.zen5_with_cxl())
    note_machine(machine=machine, facts=before, trace="b1946ac92492d234")
    assert "Hardware or firmware changed" not in reader.read("/machines/bench-1/")
    files = amd.zen5_with_cxl()
    files["proc/cpuinfo"] = str(files["proc/cpuinfo"]).replace("0xb4", "0xb5")
    note_machine(machine=machine, facts=told(files), trace="b1946ac92492d234")
    text = reader.read("/machines/bench-1/")
    assert "<strong>Hardware or firmware changed</strong> at" in text
    assert "firmware: microcode 0xb4 -&gt; 0xb5" in text
    assert "node 1: cxl, 125.9 GiB, no CPUs, distances 255 10" in text


def boots() -> Iterator[dict[str, Any]]:
    files = amd.zen3()
    yield told(files | {"proc/cmdline": "ro quiet tidemark.boot=4d0c\n"})
    other = {"proc/sys/kernel/osrelease": "6.1.0\n", "proc/meminfo": "MemTotal: 32803260 kB\n"}
    yield told(files | other | {"proc/cmdline": "ro quiet tidemark.boot=91ab\n"})
    yield told(files | {"sys/devices/system/cpu/cpufreq/boost": "0\n"})


def test_boots_of_two_kernels_disagree_in_settings_only() -> None:
    first, other_kernel, other_setting = boots()
    assert differing_facts([first, other_kernel]) == ()
    assert differing_facts([first, other_setting]) == ("boost",)
