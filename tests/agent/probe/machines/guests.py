"""Virtual machines, and machines that contradict themselves."""

from tests.agent.probe.machines.parts import CPU, Files, acpi_table, dmi, pci, system, x86_cpus


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


def old_virtualbox() -> Files:
    """No DMI, no hypervisor bit, and the host's own CPU: only the devices tell."""
    cpus = x86_cpus(1, ("GenuineIntel", 6, 42, 7), "Intel(R) Core(TM) i7-2600 CPU @ 3.40GHz")
    return {
        **system(cpus, cpus="0", memory_kb=2_000_000),
        **pci("0000:00:00.0", 0x8086, 0x1237),
        **pci("0000:00:02.0", 0x80EE, 0xBEEF),
        **pci("0000:00:04.0", 0x80EE, 0xCAFE),
    }


def emulated_by(device: Files) -> Files:
    """A machine like a physical one, but for one thing."""
    cpus = x86_cpus(1, ("GenuineIntel", 6, 85, 7), "Intel(R) Xeon(R) Gold 6248")
    return {**system(cpus, cpus="0", memory_kb=4_000_000), **device}


PROOFS: dict[str, tuple[Files, str]] = {
    "VirtualBox device": (pci("0000:00:02.0", 0x80EE, 0xBEEF), "virtualbox"),
    "VMware device": (pci("0000:00:0f.0", 0x15AD, 0x0405), "vmware"),
    "Xen platform device": (pci("0000:00:02.0", 0x5853, 0x0001), "xen"),
    "Parallels device": (pci("0000:00:03.0", 0x1AB8, 0x4000), "parallels"),
    "QEMU bridge": (pci("0000:00:01.0", 0x1B36, 0x000C), "qemu"),
    "QEMU's display": (pci("0000:00:01.0", 0x1234, 0x1111), "qemu"),
    "Hyper-V's display": (pci("0000:00:08.0", 0x1414, 0x5353), "hyperv"),
    "Intel's network card by QEMU": (pci("0000:00:02.0", 0x8086, 0x100E, (0x1AF4, 0x1100)), "qemu"),
    "QEMU's tables": (acpi_table("DSDT", b"BOCHS "), "qemu"),
    "VirtualBox' tables": (acpi_table("FACP", b"VBOX  "), "virtualbox"),
    "a bus of Hyper-V": ({"sys/bus/vmbus/devices/00000000-0000-8899-0000-000000000000/id": "1\n"}, "hyperv"),
    "a CPU of no maker": (
        {"proc/cpuinfo": x86_cpus(1, ("GenuineIntel", 6, 13, 3), "Common KVM processor")},
        "kvm",
    ),
}


def unknown_x86() -> Files:
    return system(x86_cpus(2, ("  Shanghai  ", 8, 1, 0), "ZHAOXIN KaiXian"), cpus="0-1", memory_kb=8_000_000)


def unknown_vendor() -> Files:
    return system(x86_cpus(2, ("RiseRiseRise", 6, 1, 0), "Something else"), cpus="0-1", memory_kb=8_000_000)
