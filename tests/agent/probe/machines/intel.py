"""Machines with Intel's CPUs."""

from tests.agent.probe.machines.parts import CPU, NODE, X86_FLAGS, Files, cache, dmi, node, policy, system, x86_cpus

INTEL = "GenuineIntel"


def ice_lake() -> Files:
    """A server under intel_pstate with turbo off."""
    return {
        **system(
            x86_cpus(4, (INTEL, 6, 106, 6), "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", microcode="0xd0003f5"),
            cpus="0-3",
            memory_kb=263_700_000,
            release="6.1.0-40-amd64",
        ),
        **node(0, "0-1", 131_000_000, "10 20"),
        **node(1, "2-3", 132_000_000, "20 10"),
        **policy(0, scaling_driver="intel_pstate", scaling_governor="performance", cpuinfo_max_freq=3_400_000),
        f"{CPU}/intel_pstate/no_turbo": "1\n",
        f"{CPU}/smt/control": "off\n",
        "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)\n",
    }


def sapphire_rapids() -> Files:
    """A server with high-bandwidth memory that the firmware set aside, given back by hmem as node 1."""
    return {
        **system(
            x86_cpus(2, (INTEL, 6, 143, 8), "Intel(R) Xeon(R) CPU Max 9480", flags=f"{X86_FLAGS} fsrm"),
            cpus="0-1",
            memory_kb=590_000_000,
            cmdline="ro mitigations=off",
        ),
        **node(0, "0-1", 525_000_000, "10 13"),
        **node(1, "", 65_000_000, "13 10"),
        f"{NODE}/online": "0-1\n",
        "sys/devices/platform/hmem.0/dax0.0/target_node": "1\n",
        **dmi(sys_vendor="Dell Inc.", product_name="PowerEdge R760", bios_version="2.4.4", bios_date="09/27/2024"),
        "proc/sys/kernel/version": "#1 SMP Fri Oct 2 08:00:00 UTC 2026\n",
        "sys/firmware/efi/fw_platform_size": "64\n",
    }


def alder_lake() -> Files:
    """A hybrid desktop: two strong cores with two threads each, two small ones, told apart by their counter units."""
    return {
        **system(
            x86_cpus(6, (INTEL, 6, 151, 2), "12th Gen Intel(R) Core(TM) i5-12600K"), cpus="0-5", memory_kb=32_600_000
        ),
        "sys/devices/cpu_core/cpus": "0-3\n",
        "sys/devices/cpu_atom/cpus": "4-5\n",
        **cache({0: "0-1", 2: "2-3"}, 0, 1, "Data", "48K"),
        **cache({4: "4", 5: "5"}, 0, 1, "Data", "32K"),
        **cache(dict.fromkeys(range(6), "0-5"), 3, 3, "Unified", "20480K"),
        **{f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": "4900000\n" for cpu in range(4)},
        **{f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": "3600000\n" for cpu in (4, 5)},
    }


def arrow_lake_h() -> Files:
    """Three kinds of core in one CPU."""
    return {
        **system(x86_cpus(3, (INTEL, 6, 197, 2), "Intel(R) Core(TM) Ultra 7 255H"), cpus="0-2", memory_kb=32_000_000),
        "sys/devices/cpu_core/cpus": "0\n",
        "sys/devices/cpu_atom/cpus": "1\n",
        "sys/devices/cpu_lowpower/cpus": "2\n",
    }


def unknown_hybrid() -> Files:
    """A hybrid of a model that is not in the table."""
    return {
        **system(x86_cpus(2, (INTEL, 6, 254, 0), "Genuine Intel(R) 0000"), cpus="0-1", memory_kb=16_000_000),
        "sys/devices/cpu_core/cpus": "0\n",
        "sys/devices/cpu_atom/cpus": "1\n",
    }
