"""What the probe says of machines with AMD's CPUs."""

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import amd


def test_a_desktop_tells_its_caches_clocks_and_mitigations(probe: Probe) -> None:
    facts = probe(amd.zen3())
    assert (facts.uarch, facts.virtual, facts.cpus, facts.arch) == ("zen3", False, 4, "x86_64")
    assert (facts.l1d_bytes, facts.l2_bytes, facts.llc_bytes) == (32 << 10, 512 << 10, 32 << 20)
    assert [(cache.level, cache.type, cache.shared) for cache in facts.caches] == [
        (1, "data", ("0,2", "1,3")),
        (1, "instruction", ("0,2", "1,3")),
        (2, "unified", ("0,2", "1,3")),
        (3, "unified", ("0-3",)),
    ]
    assert (facts.governor, facts.boost, facts.smt, facts.preemption) == ("schedutil", True, "on", "full")
    assert (facts.frequency.min_khz, facts.frequency.max_khz) == (2_200_000, 3_400_000)
    assert facts.mitigations["retbleed"].startswith("Mitigation: untrained return thunk")


def test_bios_strings_that_nobody_filled_in_are_not_told(probe: Probe) -> None:
    facts = probe(amd.zen3())
    assert facts.firmware == {"vendor": "American Megatrends Inc.", "version": "5003", "boot": "bios"}
    assert facts.board == {"vendor": "ASUS", "product": "System Product Name", "board": "PRIME X570-P"}


def test_words_that_name_the_single_boot_are_no_fact(probe: Probe) -> None:
    line = "tidemark.nonce=1f ro tidemarked=1 quiet  tidemark.boot=4d0c\n"
    assert probe(amd.zen3() | {"proc/cmdline": line}).cmdline == "ro tidemarked=1 quiet"


def test_a_server_tells_its_nodes_and_huge_pages(probe: Probe) -> None:
    facts = probe(amd.zen4())
    assert facts.uarch == "zen4"
    assert [(node.cpus, node.kind, node.distances) for node in facts.nodes] == [
        ("0-1", "dram", (10, 32)),
        ("2-3", "dram", (32, 10)),
    ]
    (pool,) = facts.huge_pages
    assert (pool.kb, pool.pool, pool.free) == (2048, 96, 90)
    assert pool.nodes == {"0": {"pool": 64, "free": 60}, "1": {"pool": 32, "free": 30}}
    assert facts.thp == {"enabled": "madvise", "enabled-64kB": "never"}


def test_features_cleared_on_the_command_line_are_named(probe: Probe) -> None:
    facts = probe(amd.zen4())
    assert facts.alternatives.cleared == ("fsrm", "514")
    assert facts.preemption == "none"


def test_memory_behind_a_cxl_region_is_told_from_dram(probe: Probe) -> None:
    near, far = probe(amd.zen5_with_cxl()).nodes
    assert (near.kind, near.tier, near.memory_kb) == ("dram", 4, 396_000_000)
    assert (far.kind, far.tier, far.cpus, far.distances) == ("cxl", 22, "", (255, 10))
    assert (far.initiators, far.access) == ("0", {"read_latency": 240, "read_bandwidth": 56_000})


def test_cxl_memory_that_the_firmware_set_up_is_found_by_its_address(probe: Probe) -> None:
    facts = probe(amd.zen5_with_cxl_from_firmware())
    assert [node.kind for node in facts.nodes] == ["dram", "cxl"]
    assert facts.memory_kinds == ("cxl", "dram")


def test_features_without_a_name_in_cpuinfo_are_read_from_the_kernel_s_list_of_bits(probe: Probe) -> None:
    facts = probe(amd.zen5_with_cxl())
    assert facts.alternatives.chosen_by == {
        "rep_good": True,
        "erms": True,
        "fsrm": True,
        "fzrm": False,
        "fsrs": True,
        "fsrc": False,
    }
    assert "fsrs" in facts.flags
    assert "fzrm" not in facts.flags


def test_bits_of_another_numbering_are_not_believed(probe: Probe) -> None:
    files = amd.zen5_with_cxl()
    modalias = "sys/devices/system/cpu/modalias"
    files[modalias] = str(files[modalias]).replace(",0244", "")
    facts = probe(files)
    assert set(facts.alternatives.chosen_by) == {"rep_good", "erms", "fsrm"}
    assert "fsrs" not in facts.flags


def test_kinds_of_core_of_one_model_are_told_apart_by_the_kernel_s_topology(probe: Probe) -> None:
    facts = probe(amd.strix_point())
    assert facts.uarch == "zen5"
    assert {kind.name: kind.cpus for kind in facts.core_types} == {"zen5": "0-1", "zen5c": "2-3"}
