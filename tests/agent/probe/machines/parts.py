"""Parts of /proc and /sys, as kernels format them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

Files = dict[str, str | bytes]

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
X86_FLAGS = "fpu tsc msr lm rep_good constant_tsc erms"


def x86_cpus(
    count: int, ids: tuple[str, int, int, int], name: str, *, flags: str = X86_FLAGS, microcode: str = "0xb4"
) -> str:
    vendor, family, model, stepping = ids
    return "\n".join(
        f"processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nstepping\t: {stepping}\nmicrocode\t: {microcode}\ncpu MHz\t\t: 2400.{cpu:03}\n"
        f"flags\t\t: {flags}\nbugs\t\t: spectre_v1\n"
        for cpu in range(count)
    )


def arm_cpus(
    parts: Iterable[tuple[int, int]],
    features: str = "fp asimd aes crc32 atomics",
    revision: int = 1,
    *,
    architecture: str = "8",
) -> str:
    return "\n".join(
        f"processor\t: {cpu}\nBogoMIPS\t: 50.00\nFeatures\t: {features}\nCPU implementer\t: 0x{implementer:02x}\n"
        f"CPU architecture: {architecture}\nCPU variant\t: 0x3\nCPU part\t: 0x{part:03x}\nCPU revision\t: {revision}\n"
        for cpu, (implementer, part) in enumerate(parts)
    )


def system(cpuinfo: str, *, cpus: str, memory_kb: int, release: str = "7.3.4", cmdline: str = "ro quiet") -> Files:
    """What every machine has."""
    return {
        "proc/cpuinfo": cpuinfo,
        "proc/meminfo": f"MemTotal:       {memory_kb} kB\nMemFree:        1000 kB\n",
        "proc/cmdline": f"{cmdline}\n",
        "proc/sys/kernel/osrelease": f"{release}\n",
        "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Sun Nov  1 12:00:00 UTC 2026\n",
        f"{CPU}/online": f"{cpus}\n",
        f"{CPU}/present": f"{cpus}\n",
        **pci("0000:00:00.0", 0x8086, 0x09A2),
    }


def pci(slot: str, vendor: int, device: int, subsystem: tuple[int, int] = (0, 0)) -> Files:
    """One device on the PCI bus."""
    told = {"vendor": vendor, "device": device, "subsystem_vendor": subsystem[0], "subsystem_device": subsystem[1]}
    return {f"sys/bus/pci/devices/{slot}/{name}": f"0x{number:04x}\n" for name, number in told.items()}


def acpi_table(name: str, maker: bytes) -> Files:
    """The head of a table: signature, length, revision, checksum, and who made it."""
    return {f"sys/firmware/acpi/tables/{name}": name.encode() + b"\x24\0\0\0\1\x42" + maker + b"TABLE   \1\0\0\0"}


def cache(cpus: Mapping[int, str], index: int, level: int, kind: str, size: str, *, ways: int = 8) -> Files:
    """One cache of each of `cpus`, which are named with the CPUs that they share it with."""
    files: Files = {}
    for cpu, shared in cpus.items():
        where = f"{CPU}/cpu{cpu}/cache/index{index}"
        values = {"level": level, "type": kind, "size": size, "ways_of_associativity": ways}
        values |= {"coherency_line_size": 64, "shared_cpu_list": shared}
        files |= {f"{where}/{name}": f"{value}\n" for name, value in values.items()}
    return files


def node(number: int, cpus: str, memory_kb: int, distances: str) -> Files:
    where = f"{NODE}/node{number}"
    return {
        f"{where}/cpulist": f"{cpus}\n",
        f"{where}/meminfo": f"Node {number} MemTotal:       {memory_kb} kB\nNode {number} MemFree:  5 kB\n",
        f"{where}/distance": f"{distances}\n",
    }


def dmi(**names: str) -> Files:
    return {f"sys/class/dmi/id/{name}": f"{value}\n" for name, value in names.items()}


def policy(number: int, **values: str | int) -> Files:
    return {f"{CPU}/cpufreq/policy{number}/{name}": f"{value}\n" for name, value in values.items()}


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
