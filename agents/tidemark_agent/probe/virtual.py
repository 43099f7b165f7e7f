"""Whether a machine is virtual, from firmware, devices and CPU."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.probe.identity import Cpu, is_known_vendor
from tidemark_agent.probe.tree import Tree, clean, raw_text, text
from tidemark_agent.system.process import clean_environment

# The same directory by both its names: a recorded tree may have only one of them.
_DMI = ("sys/class/dmi/id", "sys/devices/virtual/dmi/id")
_DEVICE_TREE = ("proc/device-tree", "sys/firmware/devicetree/base")
# What boards show that nobody filled in.
_PLACEHOLDERS = frozenset({"", "default string", "to be filled by o.e.m.", "not specified", "none", "n/a", "unknown"})
_FIRMWARE = {
    "vendor": "bios_vendor",
    "version": "bios_version",
    "date": "bios_date",
    "release": "bios_release",
    "controller": "ec_firmware_release",
}
# Serial numbers are left out: they name a single machine to everyone who reads its facts.
_BOARD = {
    "vendor": "sys_vendor",
    "product": "product_name",
    "product_version": "product_version",
    "board_vendor": "board_vendor",
    "board": "board_name",
    "board_version": "board_version",
    "chassis": "chassis_type",
}


def dmi(tree: Tree, name: str) -> str:
    """One string of DMI, "" if nobody filled it in."""
    told = next(filter(None, (text(tree, f"{where}/{name}") for where in _DMI)), "")
    return "" if told.lower() in _PLACEHOLDERS else told


def device_tree(tree: Tree, name: str) -> tuple[str, ...]:
    """The strings of one property of the device tree; they end with NUL."""
    told = next(filter(None, (raw_text(tree, f"{where}/{name}") for where in _DEVICE_TREE)), "")
    return tuple(filter(None, map(clean, told.split("\0"))))


def firmware(tree: Tree) -> Mapping[str, str]:
    """Who made it, its version and date; `boot` is efi, bios or devicetree, where it is known."""
    told = {name: dmi(tree, file) for name, file in _FIRMWARE.items()}
    if tree.names("sys/firmware/efi"):
        told["boot"] = "efi"
    elif told["vendor"]:
        told["boot"] = "bios"
    elif device_tree(tree, "compatible"):
        told["boot"] = "devicetree"
    return {name: said for name, said in told.items() if said}


def board(tree: Tree) -> Mapping[str, str]:
    told = {name: dmi(tree, file) for name, file in _BOARD.items()}
    told["model"] = " ".join(device_tree(tree, "model"))
    told["compatible"] = " ".join(device_tree(tree, "compatible"))
    return {name: said for name, said in told.items() if said}


# Whether the system is a virtual machine. Any one proof is enough: hints that contradict it do not take it back.
#
# Where there is none, but not enough either to call it physical, there are doubts: a person who knows the machine
# decides.

# DMI strings of emulated boards, by what they begin with: no physical machine has them.
_EMULATED = {
    "QEMU": "qemu",
    "KVM": "kvm",
    "OpenStack": "kvm",
    "VMware": "vmware",
    "VMW": "vmware",
    "innotek GmbH": "virtualbox",
    "VirtualBox": "virtualbox",
    "Xen": "xen",
    "HVM domU": "xen",
    "Bochs": "bochs",
    "Parallels": "parallels",
    "BHYVE": "bhyve",
    "Virtual Machine": "hyperv",
    "Apple Virtualization": "apple",
}
# Clouds put their name on the boards of guests, and of machines that they let whole.
_CLOUDS = {"Google": "kvm", "Amazon EC2": "kvm", "Alibaba Cloud": "kvm", "Microsoft Corporation": "hyperv"}
# The products of those that put no other name on a guest's board; who also sells laptops is not among them.
_CLOUD_PRODUCTS = {"Google": "Google Compute Engine", "Amazon EC2": "", "Alibaba Cloud": "Alibaba Cloud ECS"}
_DMI_NAMES = ("sys_vendor", "product_name", "board_vendor", "bios_vendor")
# A virtual machine of a guest's own device tree.
_COMPATIBLE = {"linux,dummy-virt": "qemu", "linux,kvm": "kvm", "xen,xen": "xen", "vmware,vmware": "vmware"}
# Devices on the PCI bus that only hypervisors make: vendors of nothing else, and single devices of others.
_PCI_VENDORS = {
    0x80EE: "virtualbox",
    0x15AD: "vmware",
    0x5853: "xen",
    0x1AB8: "parallels",
    0x1B36: "qemu",
}
_PCI_DEVICES = {(0x1234, 0x1111): "qemu", (0x1414, 0x5353): "hyperv"}
# virtio, which is no proof: cards on bare metal speak it, too.
_VIRTIO = 0x1AF4
# What QEMU writes below other makers' devices that it emulates.
_QEMU_SUBSYSTEM = (_VIRTIO, 0x1100)
# Devices that are in guests and in machines let whole alike. On x86 the CPU tells the two apart, but for Microsoft's
# hypervisor, which may hide itself.
_PCI_CLOUDS = {0x1D0F: "Amazon", 0x1AE0: "Google", 0x1414: "Microsoft"}
_MAY_HIDE = 0x1414
# Who made the firmware's tables: the six letters from the tenth on, and the tables that every machine has.
_ACPI_MAKERS = {b"BOCHS ": "qemu", b"VBOX  ": "virtualbox", b"VRTUAL": "hyperv", b"BHYVE ": "bhyve", b"Xen   ": "xen"}
_ACPI_TABLES = ("DSDT", "FACP", "APIC")
_ACPI_MAKER = slice(10, 16)
# Names of CPUs that nobody makes, by what they begin with.
_EMULATED_CPUS = {
    "QEMU ": "qemu",
    "Common KVM processor": "kvm",
    "Common 32-bit KVM processor": "kvm",
    "VirtualApple": "apple",
}
_ARCHES = ("x86_64", "aarch64")
_PCI = "sys/bus/pci/devices"
_HEX = re.compile(r"0x([0-9a-f]{4})", re.ASCII)
_DETECT_SECONDS = 10
_DETECTED = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)


@dataclass(frozen=True)
class PciDevice:
    """Numbers are -1 where the bus does not tell them."""

    vendor: int
    device: int
    subsystem: tuple[int, int]


def pci_devices(tree: Tree) -> tuple[PciDevice, ...]:
    def told(name: str, what: str) -> int:
        match = _HEX.fullmatch(text(tree, f"{_PCI}/{name}/{what}").lower())
        return int(match[1], 16) if match else -1

    return tuple(
        PciDevice(
            told(name, "vendor"), told(name, "device"), (told(name, "subsystem_vendor"), told(name, "subsystem_device"))
        )
        for name in tree.names(_PCI)
    )


def hints(tree: Tree, *, arch: str, cpus: Sequence[Cpu], devices: Sequence[PciDevice]) -> Mapping[str, str]:
    """What proves a virtual machine, by who says it; empty where nothing does."""
    flagged = any("hypervisor" in cpu.flags for cpu in cpus)
    names = {cpu.model_name for cpu in cpus}
    found = {
        "driver": text(tree, "sys/hypervisor/type").lower(),
        "dmi": _by_dmi(tree, arch=arch, flagged=flagged),
        "device_tree": _by_device_tree(tree),
        "acpi": next(filter(None, (_ACPI_MAKERS.get(maker, "") for maker in _acpi_makers(tree))), ""),
        "pci": next(filter(None, map(_by_device, devices)), ""),
        "vmbus": "hyperv" if tree.names("sys/bus/vmbus/devices") else "",
        "cpu_name": next(
            (name for begin, name in _EMULATED_CPUS.items() for cpu in names if cpu.startswith(begin)), ""
        ),
        "cpuid": "yes" if flagged else "",
    }
    return {name: said for name, said in found.items() if said and said != "none"}


def doubts(tree: Tree, *, arch: str, cpus: Sequence[Cpu], devices: Sequence[PciDevice]) -> Mapping[str, str]:
    """Why a machine that nothing proves to be virtual cannot be called physical either: a sentence by its code."""
    return dict(_doubts(tree, arch, cpus, devices))


def _doubts(tree: Tree, arch: str, cpus: Sequence[Cpu], devices: Sequence[PciDevice]) -> Iterator[tuple[str, str]]:
    if arch not in _ARCHES:
        yield "arch", f"{arch} is not a supported architecture" if arch else "its architecture is not told"
    strange = sorted({cpu.maker for cpu in cpus if not is_known_vendor(cpu.maker)})
    if strange or not cpus:
        yield "vendor", f"its CPUs are of an unknown vendor: {', '.join(strange) or 'it names none'}"
    if any(device.vendor == _VIRTIO for device in devices) or tree.names("sys/bus/virtio/devices"):
        yield "virtio", "it has virtio devices, as guests have and a few cards on bare metal"
    x86 = arch == "x86_64"
    vendors = {device.vendor for device in devices if not x86 or device.vendor == _MAY_HIDE}
    clouds = sorted(_PCI_CLOUDS[vendor] for vendor in vendors if vendor in _PCI_CLOUDS)
    if clouds and (x86 or "metal" not in dmi(tree, "product_name").lower()):
        yield "cloud", f"it has devices of {', '.join(clouds)}, as guests and machines let whole have"
    if not (devices or _is_described(tree)):
        yield "board", "neither firmware nor devices tell what it is"


def _is_described(tree: Tree) -> bool:
    told = (dmi(tree, name) for name in _DMI_NAMES)
    return any(told) or any(_acpi_makers(tree)) or bool(device_tree(tree, "compatible"))


def _acpi_makers(tree: Tree) -> Iterator[bytes]:
    for name in _ACPI_TABLES:
        yield tree.data(f"sys/firmware/acpi/tables/{name}", _ACPI_MAKER.stop)[_ACPI_MAKER]


def _by_device(device: PciDevice) -> str:
    if device.subsystem == _QEMU_SUBSYSTEM and device.vendor != _VIRTIO:
        return "qemu"
    return _PCI_VENDORS.get(device.vendor) or _PCI_DEVICES.get((device.vendor, device.device), "")


def detected(root: Path) -> str:
    """What `systemd-detect-virt --vm` says of this running system; "" if it says nothing, or `root` is another."""
    if root.resolve() != Path("/"):
        return ""
    try:
        done = subprocess.run(
            ["systemd-detect-virt", "--vm"],
            capture_output=True,
            check=False,
            timeout=_DETECT_SECONDS,
            env=clean_environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    word = done.stdout.decode("ascii", "replace").strip()
    return word if _DETECTED.fullmatch(word) and word != "none" else ""


def hypervisor_name(told: Mapping[str, str]) -> str:
    """The hypervisor's name by the best of the hints; `unknown` if all that is known is that there is one."""
    for who in ("driver", "dmi", "device_tree", "acpi", "pci", "vmbus", "cpu_name", "detected"):
        if told.get(who):
            return told[who]
    return "unknown" if told else ""


def _by_dmi(tree: Tree, *, arch: str, flagged: bool) -> str:
    strings = [dmi(tree, name) for name in _DMI_NAMES]
    for said in strings:
        for begin, name in _EMULATED.items():
            if said.startswith(begin):
                return name
    vendor, product = strings[:2]
    # x86 has a bit for it, so a cloud's name alone proves nothing there. arm64 has none; machines let whole say metal.
    is_guest = arch == "aarch64" and "metal" not in product.lower()
    is_guest = is_guest and vendor in _CLOUD_PRODUCTS and product.startswith(_CLOUD_PRODUCTS[vendor])
    return _CLOUDS.get(vendor, "") if flagged or is_guest else ""


def _by_device_tree(tree: Tree) -> str:
    told = (*device_tree(tree, "compatible"), *device_tree(tree, "hypervisor/compatible"))
    known = next((_COMPATIBLE[word] for word in told if word in _COMPATIBLE), "")
    return known or ("unknown" if device_tree(tree, "hypervisor/compatible") else "")
