"""One model of a machine, as far as the replay tells of it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """One machine; `words` are its CPU flags, `more` the facts that only it tells."""

    uarch: str
    model_name: str
    arch: str
    words: str
    l1d_bytes: int
    l2_bytes: int
    llc_bytes: int
    cpus: int
    memory_gib: int
    microcode: str = ""
    numbers: tuple[int, int, int] = (-1, -1, -1)
    midr: str = ""
    core_types: tuple[str, ...] = ("all",)
    virtual: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.uarch}-1"

    @property
    def vendor(self) -> str:
        if self.arch == "arm64":
            return "ARM"
        return "AuthenticAMD" if "AMD" in self.model_name else "GenuineIntel"
