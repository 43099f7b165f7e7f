"""What processes used, from /proc: CPU time, context switches, memory, and the CPUs they were seen on."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NANOSECOND = 1e-9


@dataclass
class Seen:
    """One process over its life; `cpu_seconds` is that of the process itself, not of its children."""

    words: str
    cpu_seconds: float = 0.0
    voluntary: int = 0
    involuntary: int = 0
    peak_kb: int = 0
    allowed: str = ""
    cpus: set[int] = field(default_factory=set)


def family(pid: int, depth: int = 0) -> Iterator[tuple[int, int]]:
    """The process and all that descend from it, each with the number of generations between them."""
    yield pid, depth
    for task in _tasks(pid):
        for child in _read(task / "children").split():
            yield from family(int(child), depth + 1)


def look(pid: int, seen: dict[int, Seen]) -> None:
    """Bring the entry of `pid` up to date; a process that ended keeps what was seen last."""
    words = _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()
    if not words:
        return
    now = Seen(words)
    for task in _tasks(pid):
        fields = _read(task / "stat").rpartition(")")[2].split()
        run_nanoseconds = _read(task / "schedstat").split()
        if len(fields) < 37 or not run_nanoseconds:  # noqa: PLR2004 (the CPU it ran on last is field 39 of the line)
            continue
        now.cpu_seconds += int(run_nanoseconds[0]) * _NANOSECOND
        now.cpus.add(int(fields[36]))
        status = dict(line.partition(":")[::2] for line in _read(task / "status").splitlines())
        now.voluntary += int(status.get("voluntary_ctxt_switches", "0"))
        now.involuntary += int(status.get("nonvoluntary_ctxt_switches", "0"))
        now.peak_kb = max(now.peak_kb, int(status.get("VmHWM", "0 kB").split()[0]))
        now.allowed = status.get("Cpus_allowed_list", "").strip()
    before = seen.get(pid)
    if before is not None:
        now.cpus |= before.cpus
        now.peak_kb = max(now.peak_kb, before.peak_kb)
    seen[pid] = now


def memory_mb(pid: int | str, field: str = "VmRSS") -> float:
    """Resident memory of a process, or another field of its status: VmHWM is the peak. Raises OSError."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    found = dict(line.partition(":")[::2] for line in status.splitlines())
    return int(found[field].split()[0]) / 1024


def shared_mb(pid: int, field: str = "Pss") -> float:
    """Memory of a process, each page divided among those that share it (PSS), or one kind of it. Raises OSError."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    found = dict(line.partition(":")[::2] for line in lines)
    return int(found[field].split()[0]) / 1024


def _tasks(pid: int) -> list[Path]:
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
