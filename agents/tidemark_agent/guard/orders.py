"""What the guard is asked, and what it reports."""


class Orders:
    """Sizes are bytes, 0 means no limit. `lifeline` and `report` are descriptors.

    No dataclass: importing that module takes longer than most of what a guard watches.
    """

    def __init__(self, words: list[str]) -> None:
        end = words.index("--")
        self.argv = words[end + 1 :]
        pairs = [word.partition("=") for word in words[:end]]
        numbers = {name: int(value) for name, _, value in pairs if name != "directory"}
        self.directories = [value for name, _, value in pairs if name == "directory"]
        self.lifeline = numbers["lifeline"]
        self.report = numbers["report"]
        self.file = numbers.get("file", 0)
        self.log = numbers.get("log", 0)
        self.memory = numbers.get("memory", 0)
        self.processes = numbers.get("processes", 0)
        self.cpu = numbers.get("cpu", 0)
        self.disk = numbers.get("disk", 0)

    @property
    def is_limited(self) -> bool:
        return bool(self.memory or self.processes or self.disk or self.cpu)


MIB = 1024**2


class Over:
    """Why the command must end; `is_ours`: not because of what it did itself."""

    def __init__(self, reason: str, *, is_ours: bool = False) -> None:
        self.reason = reason
        self.is_ours = is_ours


def report_line(over: Over | None, cpu_seconds: float) -> str:
    """What the agent reads: the seconds of CPU that the command took, then whose fault its end was, and why."""
    if over is None:
        return f"{cpu_seconds:.2f}"
    return f"{cpu_seconds:.2f} {'ours' if over.is_ours else 'its'} {over.reason}"
