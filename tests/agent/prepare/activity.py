"""A /proc and /sys of a machine at rest, and what a second adds to it."""

from dataclasses import dataclass
from pathlib import Path

AGENT = 500
STAT = (
    "cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\n"
    "cpu0 {busy} 0 0 {idle} 0 0 0 {steal} 0 0\n"
    "cpu1 0 0 0 {second} 0 0 0 0 0 0\n"
    "intr 7000 1 2 3\nctxt 9000\nprocesses 800\nprocs_running 1\nprocs_blocked 0\nsoftirq 600 1 2"
)


@dataclass
class Activity:
    """The numbers of one look, in ticks of 1/100 s: both CPUs have lived `age`, the first has worked `busy`."""

    root: Path
    age: int = 10_000
    busy: int = 1_000
    steal: int = 0

    def put(self, target: str, text: str) -> None:
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    def process(self, pid: int, name: str, ticks: int, *, parent: int = 1, started: int = 50, pages: int = 100) -> None:
        fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 6, str(started), "0", str(pages), "0", "0"]
        self.put(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(fields)}")

    def pressure(self, name: str, microseconds: int) -> None:
        self.put(
            f"proc/pressure/{name}",
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={microseconds}\nfull avg10=0.00 total=0",
        )

    def memory(self, *, available: int = 800_000, in_swap: int = 0) -> None:
        self.put(
            "proc/meminfo",
            f"MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n"
            f"SwapTotal: 500000 kB\nSwapFree: {500_000 - in_swap} kB",
        )

    def write(self) -> None:
        idle = self.age - self.busy - self.steal
        self.put("proc/stat", STAT.format(busy=self.busy, idle=idle, steal=self.steal, second=self.age))

    def second(self, *, busy: int = 0, steal: int = 0) -> None:
        """Another second, of which the first CPU worked or was taken away so many ticks."""
        self.age, self.busy, self.steal = self.age + 100, self.busy + busy, self.steal + steal
        self.write()


def resting(root: Path) -> Activity:
    activity = Activity(root)
    activity.write()
    activity.put("proc/loadavg", "0.25 0.10 0.05 1/105 4000")
    activity.put("proc/vmstat", "pgfault 77\npswpin 0\npswpout 0")
    activity.memory()
    for name in ("cpu", "memory", "io"):
        activity.pressure(name, 1000)
    activity.process(1, "init", 900, parent=0)
    activity.process(AGENT, "python3", 100)
    activity.process(501, "folio (copy)", 100, parent=AGENT)
    return activity
