"""Looks again and again at what the command takes of the host, and says when it is too much."""

import os
import time

from tidemark_agent.guarding.orders import Orders
from tidemark_agent.guarding.report import MIB, Over
from tidemark_agent.guarding.room import HiddenError, device_of, room_of, size_below
from tidemark_agent.guarding.tree import Taken, files_left, held_files, memory_left, taken_by_children

_PAUSE_SECONDS = 0.5
# Where the kernel itself does not count processes: twice as many grow in a few milliseconds.
_SHORT_PAUSE_SECONDS = 0.05
# Below this the host itself is in danger, whoever took the rest.
_LEAST_MEMORY = 256 * MIB
_LEAST_DISK = 512 * MIB
_LEAST_FILES = 10_000
# Open at once. A host has room for some 100,000 for each GiB of its memory.
_MOST_FILES = 400_000
# Of all that the host may have open. What is open without a number in a table (mapped, in a thread's own) shows here.
_LEAST_OPEN = 0.3
# Counting all files takes a while, so it is done when the disk as a whole has lost this much, or after this time.
_COUNT_BYTES, _COUNT_FILES = 256 * MIB, 50_000
_COUNT_SECONDS = 60.0


class Watch:
    """`look` is called as often as the caller likes; it looks when it is time, `pause` seconds after the last look.

    `is_counted`: the kernel holds the command to its number of processes.
    """

    def __init__(self, orders: Orders, *, is_counted: bool) -> None:
        self._orders = orders
        self.pause = _PAUSE_SECONDS if is_counted or not orders.processes else _SHORT_PAUSE_SECONDS
        self._next = 0.0
        self._counted_at = time.monotonic()
        self._device = device_of(orders.directories[0]) if orders.directories else -1
        self._last = room_of(orders.directories[0]) if orders.directories else (0, 0)

    def look(self) -> Over | None:
        now = time.monotonic()
        if not self._orders.is_limited or now < self._next:
            return None
        started = time.thread_time()
        found = self._memory_and_processes() or (self._disk(now) if self._orders.disk else None)
        # On a host with many processes a look is expensive: never more than a tenth of one CPU goes into them.
        self._next = time.monotonic() + max(self.pause, 10 * (time.thread_time() - started))
        return found

    def _memory_and_processes(self) -> Over | None:
        orders = self._orders
        if not orders.memory and not orders.processes:
            return None
        taken = taken_by_children(os.getpid(), orders.memory)
        if orders.processes and taken.processes > orders.processes:
            return Over(f"it has {taken.processes} processes and threads, {orders.processes} are allowed")
        if taken.files > _MOST_FILES:
            return Over(f"its processes may have {taken.files} files open, {_MOST_FILES} are allowed")
        if orders.memory and taken.memory > orders.memory:
            return Over(f"it took {taken.memory // MIB} MiB of memory, {orders.memory // MIB} are allowed")
        left = memory_left()
        if orders.memory and 0 <= left < _LEAST_MEMORY:
            return _host_memory(taken, left)
        few = files_left() < _LEAST_OPEN
        return Over("the host has hardly room for more open files", is_ours=True) if few else None

    def _disk(self, now: float) -> Over | None:
        orders = self._orders
        room = room_of(orders.directories[0])
        is_short = room[0] < _LEAST_DISK or room[1] < _LEAST_FILES
        lost = (self._last[0] - room[0], self._last[1] - room[1])
        is_due = now - self._counted_at > _COUNT_SECONDS
        if not is_short and not is_due and lost[0] < min(_COUNT_BYTES, orders.disk // 4) and lost[1] < _COUNT_FILES:
            return None
        self._last, self._counted_at = room, now
        try:
            size = size_below(orders.directories, orders.disk)
        except HiddenError as error:
            return Over(str(error))
        # Files without a name take as much as others.
        size += held_files(os.getpid(), self._device)
        if size > orders.disk:
            return Over(f"it takes more than {orders.disk // MIB} MiB of disk, or too many files")
        if is_short:
            # Within its limit nothing is its fault: the rest is somebody else's, who may have written it before.
            return Over(f"the disk is nearly full, {size // MIB} MiB are the build's own", is_ours=True)
        return None


def _host_memory(taken: Taken, left: int) -> Over:
    reason = f"the host has {left // MIB} MiB of memory left, the build itself took {taken.memory // MIB} MiB"
    return Over(reason, is_ours=True)
