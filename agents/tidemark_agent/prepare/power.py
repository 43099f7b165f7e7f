"""Wishes about the speed of CPUs: it must be the same in every run."""

from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.wishes import Want, Wish

_CPUFREQ = "sys/devices/system/cpu/cpufreq"
_NO_TURBO = "sys/devices/system/cpu/intel_pstate/no_turbo"


def energy_preference(files: KernelFiles) -> Wish:
    """Comes before the governor: under `performance` some drivers take no other preference than that.

    Putting back goes the other way round, so the old governor is there again when the old preference is written. The
    driver has then chosen one by itself, which is nobody's wish.
    """
    targets = _of_policies(files, "energy_performance_preference")
    parts = (Want("word", target, "performance", dependent=True) for target in targets)
    return Wish("energy-preference", "performance", tuple(parts))


def governor(files: KernelFiles) -> Wish:
    targets = _of_policies(files, "scaling_governor")
    speeds = (
        Want("word", target.replace("scaling_governor", "scaling_setspeed"), "", dependent=True)
        for target in targets
        if files.text(target) == "userspace"
    )
    return Wish("governor", "performance", (*speeds, *_word(targets, "performance")))


def boost(files: KernelFiles) -> Wish:
    """Above its nominal frequency a CPU is as fast as it is cool; off wherever the drivers have a switch for it."""
    machine = (Want("word", f"{_CPUFREQ}/boost", "0"), Want("word", _NO_TURBO, "1"))
    # The machine's switch moves those of its policies, and they cannot be on while it is off.
    has_machine = (files.root / _CPUFREQ / "boost").exists()
    policies = (Want("word", target, "0", dependent=has_machine) for target in _of_policies(files, "boost"))
    return Wish("boost", "off", (*policies, *machine))


def _of_policies(files: KernelFiles, name: str) -> list[str]:
    """The file of every policy with a CPU that is online: the others answer EBUSY."""
    return [
        f"{policy}/{name}"
        for policy in files.names(_CPUFREQ, "policy[0-9]*")
        if files.text(f"{policy}/affected_cpus") and (files.root / policy / name).exists()
    ]


def _word(targets: list[str], value: str) -> tuple[Want, ...]:
    return tuple(Want("word", target, value) for target in targets)
