"""Virtual machines, and machines that contradict themselves."""

from tests.agent.probe.machines.parts import CPU, Files, dmi, system, x86_cpus


def qemu_tcg() -> Files:
    """The emulator's own CPU, which is no real one, on its own board."""
    cpus = x86_cpus(1, ("AuthenticAMD", 15, 107, 1), "QEMU Virtual CPU version 2.5+", flags="fpu lm hypervisor")
    return {
        **system(cpus, cpus="0", memory_kb=503_904),
        **dmi(sys_vendor="QEMU", product_name="Standard PC (i440FX + PIIX, 1996)", bios_vendor="SeaBIOS"),
    }


def kvm_guest() -> Files:
    """A guest in a cloud with its host's CPU."""
    cpus = x86_cpus(2, ("GenuineIntel", 6, 207, 2), "Intel(R) Xeon(R) Platinum 8581C", flags="fpu lm erms hypervisor")
    return {
        **system(cpus, cpus="0-1", memory_kb=16_000_000),
        **dmi(sys_vendor="Google", product_name="Google Compute Engine", bios_vendor="Google"),
    }


def xen_guest() -> Files:
    """Xen says what it is; its board says something else."""
    cpus = x86_cpus(1, ("GenuineIntel", 6, 85, 7), "Intel(R) Xeon(R) Platinum 8259CL", flags="fpu lm hypervisor")
    return {
        **system(cpus, cpus="0", memory_kb=4_000_000),
        **dmi(sys_vendor="Dell Inc.", product_name="PowerEdge R640"),
        "sys/hypervisor/type": "xen\n",
    }


def emulated_board_without_bit() -> Files:
    """Contradiction: no hypervisor bit, yet the board is emulated; and other files that make no sense."""
    cpus = x86_cpus(2, ("AuthenticAMD", 25, 1, 1), "AMD EPYC 7763", flags="fpu lm erms")
    return {
        **system(cpus, cpus="0-1", memory_kb=8_000_000),
        **dmi(sys_vendor="QEMU"),
        f"{CPU}/online": "zero to one\n",
        f"{CPU}/smt/control": b"\xff\xfe\0on\n",
        f"{CPU}/cpufreq/boost": "perhaps\n",
        f"{CPU}/modalias": "cpu:type:x86,ven0002fam0019mod0001:feature:,GGGG\n",
        "proc/meminfo": "MemTotal:    much kB\n",
        "sys/devices/system/node/node0/distance": "10 near\n",
        "sys/kernel/notes": b"\4\0\0\0\xff\xff\xff\xff\3\0\0\0GNU\0short",
    }


def unknown_x86() -> Files:
    return system(x86_cpus(2, ("  Shanghai  ", 7, 59, 0), "ZHAOXIN KaiXian KX-6640MA"), cpus="0-1", memory_kb=8_000_000)
