"""How fast the CPUs may run: governors, limits, boost, and threads of one core."""

from dataclasses import dataclass

from tidemark_agent.probe.tree import Tree
from tidemark_agent.probe.values import number, numbered, text

_CPU = "sys/devices/system/cpu"
_POLICIES = f"{_CPU}/cpufreq"
_MOST_POLICIES = 8192


@dataclass(frozen=True)
class Frequency:
    """Limits in kHz over all policies, None where there are no such files (virtual machines).

    `governor`, `driver` and `preference` are one word, or all that occur, sorted, with commas.
    """

    driver: str = ""
    governor: str = ""
    preference: str = ""
    min_khz: int | None = None
    max_khz: int | None = None
    hardware_min_khz: int | None = None
    hardware_max_khz: int | None = None


def frequency(tree: Tree) -> Frequency:
    policies = [f"{_POLICIES}/policy{policy}" for policy in numbered(tree, _POLICIES, "policy")[:_MOST_POLICIES]]

    def words(name: str) -> str:
        return ", ".join(sorted({text(tree, f"{policy}/{name}") for policy in policies} - {""}))

    def numbers(name: str) -> list[int]:
        found = (number(tree, f"{policy}/{name}") for policy in policies)
        return [value for value in found if value is not None]

    return Frequency(
        driver=words("scaling_driver"),
        governor=words("scaling_governor"),
        preference=words("energy_performance_preference"),
        min_khz=min(numbers("scaling_min_freq"), default=None),
        max_khz=max(numbers("scaling_max_freq"), default=None),
        hardware_min_khz=min(numbers("cpuinfo_min_freq"), default=None),
        hardware_max_khz=max(numbers("cpuinfo_max_freq"), default=None),
    )


def boost(tree: Tree) -> bool | None:
    """Whether CPUs may run above their nominal clock; None where the system has no switch for it."""
    no_turbo = number(tree, f"{_CPU}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    switch = number(tree, f"{_POLICIES}/boost")
    if switch is not None:
        return switch != 0
    policies = numbered(tree, _POLICIES, "policy")[:_MOST_POLICIES]
    own = [number(tree, f"{_POLICIES}/policy{policy}/boost") for policy in policies]
    known = [value for value in own if value is not None]
    return any(known) if known else None


def smt(tree: Tree) -> str:
    """on, off, forceoff, notsupported, notimplemented; "on, not active" where no core has a second thread."""
    control, active = text(tree, f"{_CPU}/smt/control"), text(tree, f"{_CPU}/smt/active")
    return f"{control}, not active" if (control, active) == ("on", "0") else control
