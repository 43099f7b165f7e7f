"""The fingerprint changes with the hardware and firmware, and with nothing else."""

import pytest

from tests.agent.probe.conftest import Probe
from tests.agent.probe.machines import amd
from tests.agent.probe.machines.parts import CPU, X86_FLAGS, Files, cache, dmi, node, x86_cpus

BASE = amd.zen4()


@pytest.mark.parametrize(
    "changes",
    [
        {"proc/sys/kernel/osrelease": "6.12.0\n", "proc/sys/kernel/version": "#7 SMP\n"},
        {"proc/cmdline": "quiet nosmt\n", f"{CPU}/smt/control": "forceoff\n"},
        {"proc/cpuinfo": x86_cpus(4, (amd.AMD, 25, 17, 1), "AMD EPYC 9654 96-Core Processor", flags=X86_FLAGS)},
        {"proc/cpuinfo": x86_cpus(2, (amd.AMD, 25, 17, 1), "AMD EPYC 9654"), f"{CPU}/online": "0-1\n"},
        {"proc/meminfo": "MemTotal:       790987654 kB\n"},
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n"},
        {f"{CPU}/cpufreq/policy0/scaling_governor": "performance\n", f"{CPU}/cpufreq/boost": "0\n"},
    ],
)
def test_kernel_settings_and_memory_in_use_leave_it_as_it_is(probe: Probe, changes: Files) -> None:
    assert probe(BASE | changes).fingerprint == probe(BASE).fingerprint


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("cpu", {"proc/cpuinfo": x86_cpus(4, (amd.AMD, 25, 17, 2), "AMD EPYC 9654 96-Core Processor")}),
        ("cpu", {f"{CPU}/present": "0-7\n"}),
        ("cpu", cache({0: "0-3"}, 3, 3, "Unified", "32768K")),
        ("memory", {"proc/meminfo": "MemTotal:       593000000 kB\n"}),
        ("memory", node(1, "2-3", 395_500_000, "21 10")),
        ("firmware", {"proc/cpuinfo": x86_cpus(4, (amd.AMD, 25, 17, 1), "AMD EPYC 9654", microcode="0xb5")}),
        ("firmware", dmi(bios_version="1.9")),
        ("board", dmi(board_name="H13SSL")),
    ],
)
def test_each_change_shows_in_its_part(probe: Probe, part: str, changes: Files) -> None:
    before, after = probe(BASE), probe(BASE | changes)
    assert before.fingerprint != after.fingerprint
    differing = {
        name for name in before.fingerprint_parts if before.fingerprint_parts[name] != after.fingerprint_parts[name]
    }
    assert part in differing
    assert differing <= {part, "firmware" if "bios" in str(changes) else part}


def test_name_that_the_table_learns_is_no_other_hardware(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = probe(BASE)
    monkeypatch.setattr("tidemark_agent.probe.identity.uarch_name", lambda *_ids: "zen4-by-another-name")
    after = probe(BASE)
    assert (before.uarch, after.uarch) == ("zen4", "zen4-by-another-name")
    assert after.fingerprint == before.fingerprint


def test_it_names_the_scheme_it_was_made_by(probe: Probe) -> None:
    facts = probe(BASE)
    assert facts.fingerprint.startswith("2-")
    assert set(facts.fingerprint_parts) == {"cpu", "memory", "firmware", "board"}
