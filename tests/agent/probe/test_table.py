"""The table of microarchitectures."""

import pytest
from tidemark_agent.probe import uarch_name, uarch_table
from tidemark_agent.probe.identity import arm_name, arm_table, arm_vendor

INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        (INTEL, 6, 26, 3, "nehalem"),
        (INTEL, 6, 60, 1, "haswell"),
        (INTEL, 6, 85, 4, "skylake-server"),
        (INTEL, 6, 85, 7, "cascadelake"),
        (INTEL, 6, 85, 11, "cooperlake"),
        (INTEL, 6, 106, 6, "icelake-server"),
        (INTEL, 6, 143, 8, "sapphirerapids"),
        (INTEL, 6, 173, 1, "graniterapids"),
        (INTEL, 6, 175, 3, "sierraforest"),
        (INTEL, 6, 182, 0, "grandridge"),
        (INTEL, 6, 134, 5, "tremont"),
        (INTEL, 19, 1, 0, "diamondrapids"),
        (AMD, 23, 1, 2, "zen1"),
        (AMD, 23, 49, 0, "zen2"),
        (AMD, 25, 1, 1, "zen3"),
        (AMD, 25, 17, 1, "zen4"),
        (AMD, 25, 160, 2, "zen4"),
        (AMD, 26, 2, 1, "zen5"),
        (AMD, 26, 17, 0, "zen5"),
        (AMD, 16, 2, 3, "k10"),
        (AMD, 16, 10, 0, "k10"),
        (AMD, 18, 1, 0, "llano"),
        (AMD, 20, 2, 0, "bobcat"),
        (AMD, 21, 1, 2, "bulldozer"),
        (AMD, 21, 2, 0, "piledriver"),
        (AMD, 21, 19, 1, "piledriver"),
        (AMD, 21, 48, 1, "steamroller"),
        (AMD, 21, 96, 1, "excavator"),
        (AMD, 21, 112, 0, "excavator"),
        (AMD, 22, 0, 1, "jaguar"),
        (AMD, 22, 48, 1, "puma"),
        ("HygonGenuine", 24, 1, 1, "dhyana"),
        ("Shanghai", 7, 59, 0, "lujiazui"),
        ("CentaurHauls", 7, 91, 0, "yongfeng"),
    ],
)
def test_known_cpus_have_their_names(vendor: str, family: int, model: int, stepping: int, name: str) -> None:
    assert uarch_name(vendor, family, model, stepping) == name


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        (0x41, 0xD03, "cortex-a53"),
        (0x41, 0xD0C, "neoverse-n1"),
        (0x41, 0xD40, "neoverse-v1"),
        (0x41, 0xD49, "neoverse-n2"),
        (0x41, 0xD4A, "neoverse-e1"),
        (0x41, 0xD4F, "neoverse-v2"),
        (0x41, 0xD84, "neoverse-v3"),
        (0x41, 0xD85, "cortex-x925"),
        (0x41, 0xD8E, "neoverse-n3"),
        (0x43, 0xAF, "thunderx2"),
        (0x46, 0x1, "a64fx"),
        (0x48, 0xD01, "tsv110"),
        (0x61, 0x22, "icestorm"),
        (0x61, 0x35, "avalanche"),
        (0xC0, 0xAC3, "ampere1"),
        (0x51, 0x800, "unknown-arm64-51-800"),
    ],
)
def test_known_parts_have_their_names(implementer: int, part: int, name: str) -> None:
    assert arm_name(implementer, part) == name


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        (INTEL, 6, 61234, "unknown-genuineintel-6-61234"),
        (AMD, 31, 1, "unknown-authenticamd-31-1"),
        ("  Shanghai  ", 7, 59, "unknown-shanghai-7-59"),
        ("", -1, -1, "unknown-vendor-0-0"),
        ("A" * 300, 1, 1, f"unknown-{'a' * 20}-1-1"),
    ],
)
def test_unknown_cpu_is_never_guessed(vendor: str, family: int, model: int, name: str) -> None:
    assert uarch_name(vendor, family, model, 0) == name


def test_no_cpu_is_two_microarchitectures() -> None:
    for vendor, family in {(row.vendor, row.family) for row in uarch_table()}:
        for model in range(256):
            for stepping in range(16):
                hits = [row.name for row in uarch_table() if row.matches(vendor, family, model, stepping)]
                assert len(hits) <= 1, (vendor, family, model, stepping, hits)


def test_every_maker_of_arm_cores_has_a_name() -> None:
    assert all(arm_vendor(implementer) for implementer, _part in arm_table())
    assert len(arm_table()) > 80
    assert arm_vendor(0x7F) == ""


def test_every_kind_of_core_has_a_name_that_no_other_kind_of_its_cpu_has() -> None:
    hybrids = [row for row in uarch_table() if row.cores]
    assert {"alderlake", "raptorlake", "meteorlake", "arrowlake"} <= {row.name for row in hybrids}
    for row in hybrids:
        assert len(set(row.cores.values())) == len(row.cores) >= 2
        assert set(row.cores) <= {"core", "atom", "lowpower"}
