"""Whether the system is a virtual machine. Any one proof is enough: hints that contradict it do not take it back."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidemark_agent.probe.firmware import device_tree, dmi
from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import text
from tidemark_agent.process import clean_environment

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
_DETECT_SECONDS = 10
_DETECTED = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)


def hints(tree: Tree, *, arch: str, flagged: bool) -> Mapping[str, str]:
    """What speaks for a virtual machine, by who says it; empty on a physical one."""
    found = {
        "driver": text(tree, "sys/hypervisor/type").lower(),
        "dmi": _by_dmi(tree, arch=arch, flagged=flagged),
        "device_tree": _by_device_tree(tree),
        "cpuid": "yes" if flagged else "",
    }
    return {name: said for name, said in found.items() if said and said != "none"}


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
    for who in ("driver", "dmi", "device_tree", "detected"):
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
