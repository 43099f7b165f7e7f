"""Machines with Arm's architecture."""

from tests.agent.probe.machines.parts import CPU, NODE, Files, arm_cpus, dmi, node, system

_MIDR = "regs/identification/midr_el1"


def neoverse_n1() -> Files:
    """A server whose registers are shown in /sys, with pages of 64 KiB."""
    return {
        **system(arm_cpus([(0x41, 0xD0C)] * 4), cpus="0-3", memory_kb=263_000_000),
        **{f"{CPU}/cpu{cpu}/{_MIDR}": "0x00000000413fd0c1\n" for cpu in range(4)},
        **node(0, "0-3", 263_000_000, "10"),
        **dmi(sys_vendor="GIGABYTE", product_name="R272-P30-JG", bios_vendor="GIGABYTE", bios_version="F16f"),
        "proc/self/smaps": "aaaad0000000-aaaad0010000 r-xp 00000000 08:01 1 /bin/cat\nKernelPageSize:       64 kB\n",
        "proc/sys/kernel/arch": "aarch64\n",
        "dev/kmsg": "6,100,0,-;CPU features: detected: LSE atomic instructions\n"
        "6,101,0,-;CPU features: detected: Spectre-v4\n6,102,0,-;eth0: link up\n",
    }


def neoverse_v2() -> Files:
    """A server with memory of its own for a device: node 1 has no CPUs and nothing says what it is."""
    return {
        **system(
            arm_cpus([(0x41, 0xD4F)] * 2, features="fp asimd sve sve2 mops", revision=0), cpus="0-1", memory_kb=10**8
        ),
        **node(0, "0-1", 99_000_000, "10 80"),
        **node(1, "", 1_000_000, "80 10"),
        **node(2, "", 0, "80 80"),
        f"{NODE}/online": "0-2\n",
    }


def big_little() -> Files:
    """A board with two kinds of core, in no order of strength, described by a device tree."""
    parts = [(0x41, 0xD05)] * 4 + [(0x41, 0xD0B)] * 4
    small, big = arm_cpus(parts[:4], revision=0), arm_cpus(parts[:4] + parts[4:], "fp asimd atomics dcpop", 0)
    cpuinfo = small + "\n" + big[big.index("processor\t: 4") :]
    return {
        **system(cpuinfo, cpus="0-7", memory_kb=8_000_000),
        **{f"{CPU}/cpu{cpu}/cpu_capacity": f"{414 if cpu < 4 else 1024}\n" for cpu in range(8)},
        "proc/device-tree/model": b"Radxa ROCK 5B\0",
        "proc/device-tree/compatible": b"radxa,rock-5b\0rockchip,rk3588\0",
    }


def cortex_a15() -> Files:
    """A kernel of 32 bits, on a board with a device tree."""
    return {
        **system(arm_cpus([(0x41, 0xC0F)] * 2, architecture="7"), cpus="0-1", memory_kb=2_000_000),
        "proc/device-tree/compatible": b"samsung,arndale\0samsung,exynos5250\0",
        "proc/sys/kernel/arch": "armv7l\n",
    }


def unknown_arm() -> Files:
    return system(arm_cpus([(0x41, 0xDFE)] * 2), cpus="0-1", memory_kb=4_000_000)


def guest_on_arm() -> Files:
    """There is no CPUID bit: the device tree of a virtual board tells."""
    return {
        **system(arm_cpus([(0x41, 0xD0C)]), cpus="0", memory_kb=1_000_000),
        "proc/device-tree/compatible": b"linux,dummy-virt\0",
    }
