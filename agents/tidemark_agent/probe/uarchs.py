"""Names of microarchitectures: a table as data, and nothing that is guessed."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

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
