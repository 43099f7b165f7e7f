"""What one command, with all that it starts, may take of the host. The guard holds it to that (guarding/)."""

from dataclasses import dataclass
from pathlib import Path

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
