"""Probing a system: what a directory tree with /proc and /sys of some machine says about it."""

from pathlib import Path

import pytest
from tidemark_agent.probe import facts_from, probe_system, uarch_name, uarch_table

HASWELL_GUEST = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 60
model name\t: Intel Core Processor (Haswell, no TSX)
stepping\t: 1
flags\t\t: fpu tsc erms hypervisor

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 60
model name\t: Intel Core Processor (Haswell, no TSX)
stepping\t: 1
flags\t\t: fpu tsc erms hypervisor
"""
ZEN5_HOST = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC 9755 128-Core Processor
stepping\t: 1
flags\t\t: fpu tsc erms fsrm
"""


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        ("GenuineIntel", 6, 26, 3, "nehalem"),
        ("GenuineIntel", 6, 60, 1, "haswell"),
        ("GenuineIntel", 6, 85, 4, "skylake-server"),
        ("GenuineIntel", 6, 85, 7, "cascadelake"),
        ("GenuineIntel", 6, 106, 6, "icelake-server"),
        ("GenuineIntel", 6, 143, 8, "sapphirerapids"),
        ("GenuineIntel", 6, 173, 1, "graniterapids"),
        ("AuthenticAMD", 23, 1, 2, "zen1"),
        ("AuthenticAMD", 23, 49, 0, "zen2"),
        ("AuthenticAMD", 25, 1, 1, "zen3"),
        ("AuthenticAMD", 25, 17, 1, "zen4"),
        ("AuthenticAMD", 26, 2, 1, "zen5"),
    ],
)
def test_known_cpus_have_their_names(vendor: str, family: int, model: int, stepping: int, name: str) -> None:
    assert uarch_name(vendor, family, model, stepping) == name


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("GenuineIntel", 6, 61234, "unknown-genuineintel-6-61234"),
        ("AuthenticAMD", 31, 1, "unknown-authenticamd-31-1"),
        ("  Shanghai  ", 7, 59, "unknown-shanghai-7-59"),
        ("", -1, -1, "unknown-vendor-0-0"),
    ],
)
def test_unknown_cpu_is_never_guessed(vendor: str, family: int, model: int, name: str) -> None:
    assert uarch_name(vendor, family, model, 0) == name


def test_no_cpu_is_two_microarchitectures() -> None:
    for vendor in ("GenuineIntel", "AuthenticAMD"):
        for family in (6, 23, 25, 26):
            for model in range(256):
                for stepping in range(16):
                    hits = [row.name for row in uarch_table() if row.matches(vendor, family, model, stepping)]
                    assert len(hits) <= 1, (vendor, family, model, stepping, hits)


def test_guest_is_virtual_and_names_its_hypervisor(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/cpuinfo": HASWELL_GUEST,
            "proc/meminfo": "MemTotal:         503904 kB\nMemFree: 1 kB\n",
            "proc/cmdline": "console=ttyS0 quiet\n",
            "proc/sys/kernel/osrelease": "6.1.192\n",
            "sys/devices/system/cpu/online": "0-1\n",
            "sys/class/dmi/id/sys_vendor": "QEMU\n",
        },
    )
    facts = probe_system(root)
    assert (facts.uarch, facts.virtual, facts.hypervisor) == ("haswell", True, "qemu")
    assert (facts.cpus, facts.memory_kb, facts.kernel_release) == (2, 503904, "6.1.192")
    assert facts.cmdline == "console=ttyS0 quiet"
    assert [(kind.name, kind.cpus) for kind in facts.core_types] == [("all", "0-1")]
    assert "erms" in facts.flags


def test_physical_host_is_not_virtual_though_its_vendor_sells_clouds(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/cpuinfo": ZEN5_HOST, "sys/class/dmi/id/sys_vendor": "Google\n"})
    facts = probe_system(root)
    assert (facts.uarch, facts.virtual, facts.hypervisor) == ("zen5", False, "")


def test_system_that_says_nothing_is_unknown(tmp_path: Path) -> None:
    facts = probe_system(tmp_path)
    assert (facts.uarch, facts.cpus, facts.memory_kb) == ("unknown-vendor-0-0", 0, 0)


def test_driver_that_knows_the_hypervisor_makes_the_facts_virtual() -> None:
    facts = facts_from(
        cpuinfo=ZEN5_HOST, meminfo="", cmdline="", release="", hypervisor="qemu-tcg", clock="instructions"
    )
    assert (facts.virtual, facts.hypervisor, facts.clock) == (True, "qemu-tcg", "instructions")
