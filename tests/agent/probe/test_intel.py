"""What the probe says of machines with Intel's CPUs."""

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import intel


def test_turbo_that_is_off_is_boost_that_is_off(probe: Probe) -> None:
    facts = probe(intel.ice_lake())
    assert (facts.uarch, facts.microcode) == ("icelake-server", "0xd0003f5")
    assert (facts.boost, facts.smt, facts.governor) == (False, "off", "performance")
    assert facts.frequency.driver == "intel_pstate"
    assert facts.preemption == "dynamic"


def test_memory_set_aside_by_the_firmware_has_its_own_kind(probe: Probe) -> None:
    facts = probe(intel.sapphire_rapids())
    assert facts.uarch == "sapphirerapids"
    assert [(node.kind, node.cpus) for node in facts.nodes] == [("dram", "0-1"), ("specific", "")]
    assert facts.firmware == {"version": "2.4.4", "date": "09/27/2024", "boot": "efi"}


def test_a_kernel_without_words_for_preemption_is_not_guessed(probe: Probe) -> None:
    assert probe(intel.sapphire_rapids()).preemption == "none or voluntary"


def test_hybrid_has_two_core_types_the_strong_one_first(probe: Probe) -> None:
    facts = probe(intel.alder_lake())
    assert facts.uarch == "alderlake"
    assert [(kind.name, kind.cpus) for kind in facts.core_types] == [("golden-cove", "0-3"), ("gracemont", "4-5")]
    assert [(kind.uarch, kind.cpus) for kind in facts.cpu_kinds] == [("golden-cove", "0-3"), ("gracemont", "4-5")]
    assert (facts.l1d_bytes, facts.llc_bytes) == (48 << 10, 20 << 20)


def test_hybrid_with_its_small_cores_off_has_one_core_type(probe: Probe) -> None:
    files = intel.alder_lake()
    cpuinfo = str(files["proc/cpuinfo"])
    files["proc/cpuinfo"] = cpuinfo[: cpuinfo.index("processor\t: 4")]
    files["sys/devices/system/cpu/online"] = "0-3\n"
    assert [(kind.name, kind.cpus) for kind in probe(files).core_types] == [("all", "0-3")]


def test_three_kinds_of_core_have_three_names(probe: Probe) -> None:
    facts = probe(intel.arrow_lake_h())
    assert {kind.name: kind.cpus for kind in facts.core_types} == {"lion-cove": "0", "skymont": "1", "crestmont": "2"}


def test_cores_of_an_unknown_hybrid_are_told_apart_and_not_guessed(probe: Probe) -> None:
    facts = probe(intel.unknown_hybrid())
    assert facts.uarch == "unknown-genuineintel-6-254"
    assert {kind.name for kind in facts.core_types} == {f"{facts.uarch}-core", f"{facts.uarch}-atom"}
