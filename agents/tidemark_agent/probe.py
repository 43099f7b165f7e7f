"""What the agent can say about a system: this one, or one whose files it is shown."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tidemark_agent.version import bundle_root

_HYPERVISOR_NAMES = {
    "KVMKVMKVM": "kvm",
    "QEMU": "qemu",
    "VMware, Inc.": "vmware",
    "Microsoft Corporation": "hyperv",
    "Xen": "xen",
    "Google": "kvm",
    "Amazon EC2": "kvm",
}


@dataclass(frozen=True)
class CoreKind:
    """One kind of core and the CPUs that are of it, as a CPU list."""

    name: str
    cpus: str


@dataclass(frozen=True)
class Facts:
    """What a booted system says about itself; `clock` is wall unless the boot driver counts instructions."""

    uarch: str
    vendor: str
    family: int
    model: int
    stepping: int
    model_name: str
    flags: tuple[str, ...]
    virtual: bool
    hypervisor: str
    clock: str
    kernel_release: str
    cmdline: str
    memory_kb: int
    cpus: int
    core_types: tuple[CoreKind, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Uarch:
    """One line of the table: which CPUID values are this microarchitecture."""

    name: str
    vendor: str
    family: int
    models: tuple[tuple[int, int], ...]
    steppings: tuple[int, int]

    def matches(self, vendor: str, family: int, model: int, stepping: int) -> bool:
        return (
            (vendor, family) == (self.vendor, self.family)
            and any(first <= model <= last for first, last in self.models)
            and self.steppings[0] <= stepping <= self.steppings[1]
        )


@cache
def uarch_table() -> tuple[Uarch, ...]:
    text = (bundle_root() / "tidemark_agent" / "uarchs.toml").read_text(encoding="utf-8")
    return tuple(
        Uarch(
            name=row["name"],
            vendor=row["vendor"],
            family=row["family"],
            models=tuple((first, last) for first, last in row["models"]),
            steppings=tuple(row.get("steppings", (-1, 255))),
        )
        for row in tomllib.loads(text)["uarch"]
    )


def uarch_name(vendor: str, family: int, model: int, stepping: int) -> str:
    """The microarchitecture's name; `unknown-VENDOR-FAMILY-MODEL` for a CPU that is not in the table."""
    for uarch in uarch_table():
        if uarch.matches(vendor, family, model, stepping):
            return uarch.name
    word = re.sub(r"[^a-z0-9]+", "", vendor.lower()) or "vendor"
    return f"unknown-{word}-{max(family, 0)}-{max(model, 0)}"


def facts_from(
    *,
    cpuinfo: str,
    meminfo: str,
    cmdline: str,
    release: str,
    online: str = "",
    hypervisor: str = "",
    clock: str = "wall",
) -> Facts:
    """Facts from the texts of the files in /proc and /sys, wherever they came from."""
    cpus = [_fields(block) for block in cpuinfo.strip().split("\n\n") if "processor" in block]
    first = cpus[0] if cpus else {}
    vendor = first.get("vendor_id", "")
    family, model, stepping = (_number(first.get(name, "")) for name in ("cpu family", "model", "stepping"))
    flags = tuple(first.get("flags", "").split())
    memory = re.search(r"^MemTotal:\s*(\d+) kB", meminfo, re.MULTILINE)
    every = online.strip() or (f"0-{len(cpus) - 1}" if len(cpus) > 1 else "0")
    return Facts(
        uarch=uarch_name(vendor, family, model, stepping),
        vendor=vendor,
        family=family,
        model=model,
        stepping=stepping,
        model_name=first.get("model name", ""),
        flags=flags,
        virtual="hypervisor" in flags or bool(hypervisor),
        hypervisor=hypervisor or ("unknown" if "hypervisor" in flags else ""),
        clock=clock,
        kernel_release=release.strip(),
        cmdline=cmdline.strip(),
        memory_kb=int(memory[1]) if memory else 0,
        cpus=len(cpus),
        core_types=(CoreKind("all", every),),
    )


def probe_system(root: Path) -> Facts:
    """Facts about the system whose /proc and /sys are below `root`."""
    cpuinfo = _text(root / "proc/cpuinfo")
    is_guest = re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) is not None
    return facts_from(
        cpuinfo=cpuinfo,
        meminfo=_text(root / "proc/meminfo"),
        cmdline=_text(root / "proc/cmdline"),
        release=_text(root / "proc/sys/kernel/osrelease"),
        online=_text(root / "sys/devices/system/cpu/online"),
        hypervisor=_hypervisor(root) if is_guest else "",
    )


def _hypervisor(root: Path) -> str:
    """The hypervisor's name where the system says it; a bare-metal host has vendor names too, so only ask in guests."""
    kind = _text(root / "sys/hypervisor/type").strip()
    vendor = _text(root / "sys/class/dmi/id/sys_vendor").strip()
    return kind or _HYPERVISOR_NAMES.get(vendor, "")


def _fields(block: str) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _number(text: str) -> int:
    """CPU numbers are decimal; -1 says that the system did not tell."""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else -1


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
