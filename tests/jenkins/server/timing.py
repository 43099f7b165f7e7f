"""How long things take: as measured with a real controller, or faster."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Timing:
    """All in seconds."""

    quiet_period: float = 5.0
    # An item that left the queue is shown for so long; afterwards its URL is 404.
    left_item: float = 300.0
    agent_lost: float = 0.3
    stop: float = 0.2
    # For so long a process that was told to end is waited for before its parent's turn.
    soft_kill: float = 5.0
    # A frozen agent: the node goes offline first, then its build fails (default pings).
    frozen_node: float = 536.0
    frozen_build: float = 586.0
    # A build on a frozen agent ends so long after doDisconnect.
    disconnect_frozen: float = 60.0
    agent_back: float = 1.0
    restart: float = 10.7
    agents_back_after_restart: float = 4.0
    # The queue and its next id are written to disk at most this often.
    queue_saved: float = 60.0

    def faster(self, factor: float) -> "Timing":
        return Timing(**{field.name: getattr(self, field.name) / factor for field in fields(self)})


RECORDED = Timing()
