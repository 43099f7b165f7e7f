"""Which work goes where next: a snapshot of what waits, a pure decision over it, and why the rest waits."""

from server.lab.scheduling.builders import local_builder
from server.lab.scheduling.deciding import decide
from server.lab.scheduling.placing import Placement, next_placements
from server.lab.scheduling.reading import read_snapshot
from server.lab.scheduling.snapshot import Decision, Snapshot
from server.lab.scheduling.waiting import Waiting, queue_in_order, why_waiting

__all__ = [
    "Decision",
    "Placement",
    "Snapshot",
    "Waiting",
    "decide",
    "local_builder",
    "next_placements",
    "queue_in_order",
    "read_snapshot",
    "why_waiting",
]
