"""What one command, with all that it starts, may take of the host. The guard holds it to that (guarding/)."""

from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import UnfitError
from tidemark_agent.guarding.cgroup import memory_trouble

MIB = 1024**2


@dataclass(frozen=True)
class Limits:
    """0 means no such limit.

    `memory_bytes` and `processes` (threads count, as the kernel counts) are for the whole tree of processes,
    `cpu_seconds` for each process in it, `disk_bytes` for all that is below `directories`.
    """

    memory_bytes: int = 0
    processes: int = 0
    cpu_seconds: int = 0
    disk_bytes: int = 0
    directories: tuple[Path, ...] = ()

    def words(self) -> list[str]:
        """As the guard reads them."""
        numbers = {
            "memory": self.memory_bytes,
            "processes": self.processes,
            "cpu": self.cpu_seconds,
            "disk": self.disk_bytes,
        }
        words = [f"{name}={value}" for name, value in numbers.items() if value]
        return [*words, *(f"directory={path}" for path in self.directories)]


def require_memory_group() -> None:
    """Raise UnfitError unless a memory cgroup would hold what strangers' code takes: nothing else counts all of it."""
    if trouble := memory_trouble():
        help_ = "set MemoryMax= or Delegate= on its unit, or mem_limit on its container (docs/operations/builders.md)"
        raise UnfitError(f"no limit on memory would hold other people's code: {trouble}; {help_}")
