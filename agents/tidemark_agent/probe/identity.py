"""Which CPU it is: vendor, model, microarchitecture."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tidemark_agent.probe.kernel import architecture
from tidemark_agent.probe.tree import LARGE, MOST_CPUS, Tree, as_number, clean, raw_text, text
from tidemark_agent.version import bundle_root

# Longer words in a vendor's place are no vendor's name.
_LONGEST_WORD = 20


@dataclass(frozen=True)
class Uarch:
    """One line of the table: which CPUID values are this microarchitecture.

    `cores` names the kinds of core of a model that can have several, by the kernel's name for the kind
    (`core`, `atom`, `lowpower`).
    """

    name: str
    vendor: str
    family: int
    models: tuple[tuple[int, int], ...]
    steppings: tuple[int, int]
    cores: Mapping[str, str] = field(default_factory=dict)

    def matches(self, vendor: str, family: int, model: int, stepping: int) -> bool:
        return (
            (vendor, family) == (self.vendor, self.family)
            and any(first <= model <= last for first, last in self.models)
            and self.steppings[0] <= stepping <= self.steppings[1]
        )


@cache
def uarch_table() -> tuple[Uarch, ...]:
    return tuple(
        Uarch(
            name=row["name"],
            vendor=row["vendor"],
            family=row["family"],
            models=tuple((first, last) for first, last in row["models"]),
            steppings=tuple(row.get("steppings", (-1, 255))),
            cores=row.get("cores", {}),
        )
        for row in _tables()["uarch"]
    )


@cache
def arm_table() -> Mapping[tuple[int, int], str]:
    """Names by the implementer and part in MIDR_EL1."""
    names: dict[tuple[int, int], str] = {}
    for maker in _tables()["midr"]:
        for name, parts in maker["parts"].items():
            names.update({(maker["implementer"], part): name for part in parts})
    return names


@cache
def arm_vendor(implementer: int) -> str:
    vendors = {maker["implementer"]: maker["vendor"] for maker in _tables()["midr"]}
    return str(vendors.get(implementer, ""))


def find_uarch(vendor: str, family: int, model: int, stepping: int) -> Uarch | None:
    return next((row for row in uarch_table() if row.matches(vendor, family, model, stepping)), None)


def uarch_name(vendor: str, family: int, model: int, stepping: int) -> str:
    """The microarchitecture's name; `unknown-VENDOR-FAMILY-MODEL` for a CPU that is not in the table."""
    known = find_uarch(vendor, family, model, stepping)
    if known is not None:
        return known.name
    word = re.sub(r"[^a-z0-9]+", "", vendor.lower())[:_LONGEST_WORD] or "vendor"
    return f"unknown-{word}-{max(family, 0)}-{max(model, 0)}"


def arm_name(implementer: int, part: int, *, bits: int = 64) -> str:
    """The microarchitecture's name; `unknown-arm64-IMPLEMENTER-PART` (hexadecimal) for one that is not in the table.

    Below a kernel of 32 bits it is `unknown-arm-...`, whatever it is: nothing is measured there.
    """
    if bits != 64:  # noqa: PLR2004 (the other one is 32)
        return f"unknown-arm-{implementer:02x}-{part:03x}"
    return arm_table().get((implementer, part)) or f"unknown-arm64-{implementer:02x}-{part:03x}"


@cache
def is_known_vendor(maker: str) -> bool:
    """Whether the table has CPUs of this vendor; `maker` as CPUID writes it, or the implementer's name."""
    return maker in {row.vendor for row in uarch_table()} | {entry["vendor"] for entry in _tables()["midr"]}


@cache
def _tables() -> dict[str, Any]:
    text = (bundle_root() / "tidemark_agent" / "uarchs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})", re.ASCII)
# Family, model and stepping have at most 12 bits; a longer number is garbage.
_LONGEST_NUMBER = 9


@dataclass(frozen=True)
class Midr:
    """The fields of Arm's Main ID Register."""

    implementer: int
    variant: int
    part: int
    revision: int

    @classmethod
    def of(cls, value: int) -> "Midr":
        return cls(value >> 24 & 0xFF, value >> 20 & 0xF, value >> 4 & 0xFFF, value & 0xF)

    @property
    def value(self) -> int:
        """The register; its architecture field is always 0xf on such CPUs."""
        return self.implementer << 24 | self.variant << 20 | 0xF << 16 | self.part << 4 | self.revision


@dataclass(frozen=True)
class Cpu:
    """One CPU that is online. Numbers are -1 and texts empty where the system does not tell; `midr` is Arm's.

    `bits` are those of the kernel on an Arm CPU: one of 32 runs on 64-bit CPUs, too.
    """

    number: int
    vendor: str = ""
    family: int = -1
    model: int = -1
    stepping: int = -1
    model_name: str = ""
    microcode: str = ""
    flags: frozenset[str] = frozenset()
    midr: Midr | None = None
    bits: int = 64

    @property
    def maker(self) -> str:
        """Its vendor's name; the number of Arm's implementers that have none here."""
        return self.vendor or (f"0x{self.midr.implementer:02x}" if self.midr else "")

    @property
    def uarch(self) -> str:
        if self.midr is not None:
            return arm_name(self.midr.implementer, self.midr.part, bits=self.bits)
        return uarch_name(self.vendor, self.family, self.model, self.stepping)

    @property
    def ids(self) -> str:
        """The numbers that identify it, as people write them: 25-1-1 (family, model, stepping) or 0x413fd0c1."""
        if self.midr is not None:
            return f"0x{self.midr.value:08x}"
        return f"{self.family}-{self.model}-{self.stepping}"


def online_cpus(tree: Tree) -> tuple[Cpu, ...]:
    """The CPUs in /proc/cpuinfo by number, their MIDR from the register itself where /sys shows it."""
    found: dict[int, Cpu] = {}
    flags: dict[str, frozenset[str]] = {}
    bits = 32 if architecture(tree) == "arm" else 64
    for fields in _blocks(raw_text(tree, "proc/cpuinfo", LARGE)):
        place = as_number(fields.get("processor", ""))
        if place is not None and place < MOST_CPUS and place not in found:
            found[place] = _cpu(tree, place, fields, flags, bits)
    return tuple(found[place] for place in sorted(found))


def _cpu(tree: Tree, place: int, fields: dict[str, str], flags: dict[str, frozenset[str]], bits: int) -> Cpu:
    # Hundreds of CPUs have one and the same line of flags: it is kept once.
    line = fields.get("flags", "") or fields.get("Features", "")
    words = flags.setdefault(line, frozenset(filter(None, map(clean, line.split()))))
    midr = _midr(tree, place, fields)
    if midr is not None:
        return Cpu(place, vendor=arm_vendor(midr.implementer), flags=words, midr=midr, bits=bits)
    return Cpu(
        number=place,
        vendor=clean(fields.get("vendor_id", "")),
        family=_short_number(fields.get("cpu family", "")),
        model=_short_number(fields.get("model", "")),
        stepping=_short_number(fields.get("stepping", "")),
        model_name=clean(fields.get("model name", "")),
        microcode=clean(fields.get("microcode", "")),
        flags=words,
    )


def _midr(tree: Tree, place: int, fields: dict[str, str]) -> Midr | None:
    if "vendor_id" in fields:
        return None
    shown = _hex(text(tree, f"sys/devices/system/cpu/cpu{place}/regs/identification/midr_el1"))
    if shown:
        return Midr.of(shown)
    names = ("CPU implementer", "CPU variant", "CPU part")
    implementer, variant, part = (_hex(fields.get(name, "")) for name in names)
    revision = as_number(fields.get("CPU revision", ""))
    if implementer is None or part is None:
        return None
    return Midr(implementer & 0xFF, (variant or 0) & 0xF, part & 0xFFF, (revision or 0) & 0xF)


def _blocks(told: str) -> Iterator[dict[str, str]]:
    """One mapping for each CPU; the first field of each is `processor`, so a lost blank line does no harm."""
    fields: dict[str, str] = {}
    for line in told.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == "processor" and fields:
            yield fields
            fields = {}
        if colon:
            fields.setdefault(name.strip(), value.strip())
    if fields:
        yield fields


def _short_number(told: str) -> int:
    value = as_number(told)
    return -1 if value is None or len(told) > _LONGEST_NUMBER else value


def _hex(told: str) -> int | None:
    match = _HEX.fullmatch(told)
    return int(match[1], 16) if match else None
