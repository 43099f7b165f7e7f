"""What the guard tells the agent when it has ended the command."""

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
