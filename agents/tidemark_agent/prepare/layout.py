"""Which CPUs are measured and which do the rest."""

from dataclasses import dataclass

from tidemark_agent.prepare.cpu_list import cpu_list, cpu_set
from tidemark_agent.prepare.files import KernelFiles, SettingError
from tidemark_agent.prepare.model import CannotMeasureError, Setting

_CPUS = "sys/devices/system/cpu"
# With fewer, giving one away changes more about what is measured than it quietens.
_FEWEST_CPUS = 4


@dataclass(frozen=True)
class Layout:
    """Disjoint sets of the online CPUs; without housekeeping all are measured and nothing can be moved away."""

    housekeeping: frozenset[int]
    measured: frozenset[int]

    def as_setting(self) -> Setting:
        text = cpu_list(self.housekeeping) or "none"
        note = "" if self.housekeeping else f"fewer than {_FEWEST_CPUS} CPUs: nothing is pinned or moved"
        return Setting("housekeeping", "", text, text, "kept", note)


def read_layout(files: KernelFiles, wanted: str) -> Layout:
    """The operator's choice, else CPU 0 and what shares its core; raises CannotMeasureError for a choice that fails."""
    online = online_cpus(files)
    chosen = cpu_set(wanted)
    if offline := chosen - online:
        raise CannotMeasureError(f"housekeeping_cpus names CPUs that are not online: {cpu_list(offline)}")
    if not chosen and len(online) >= _FEWEST_CPUS:
        first = min(online)
        chosen = (_siblings(files, first) | {first}) & online
    if chosen == online and wanted:
        raise CannotMeasureError(f"housekeeping_cpus = {wanted!r} leaves no CPU to measure on")
    # All CPUs on one core, as siblings: there is no quiet one to be had.
    housekeeping = frozenset() if chosen == online else chosen
    return Layout(housekeeping, online - housekeeping)


def online_cpus(files: KernelFiles) -> frozenset[int]:
    """Raises CannotMeasureError if the system does not tell."""
    try:
        online = cpu_set(files.read(f"{_CPUS}/online") or "")
    except (ValueError, SettingError) as error:
        raise CannotMeasureError(f"/{_CPUS}/online: {error}") from error
    if not online:
        # Kernels without SMP have no such file: there is one CPU, and it is number 0.
        return frozenset({0})
    return online


def _siblings(files: KernelFiles, cpu: int) -> frozenset[int]:
    try:
        return cpu_set(files.read(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") or "")
    except (ValueError, SettingError):
        return frozenset()
