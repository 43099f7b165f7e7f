"""What the guard tells the agent when it has ended the command."""

MIB = 1024**2


class Over:
    """Why the command must end; `is_ours`: not because of what it did itself."""

    def __init__(self, reason: str, *, is_ours: bool = False) -> None:
        self.reason = reason
        self.is_ours = is_ours

    def line(self) -> str:
        return f"{'ours' if self.is_ours else 'its'} {self.reason}"
