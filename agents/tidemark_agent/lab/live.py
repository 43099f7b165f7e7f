"""The agent's own log as people may watch it: the last lines travel with the heartbeats."""

import sys
import threading

# What the service keeps of one attempt.
_MOST_CHARACTERS = 64 * 1024
_PIECE_CHARACTERS = 16 * 1024


class LiveLog:
    """A stream for `Log` that passes on to stderr and keeps what no heartbeat has carried yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = ""

    def write(self, text: str) -> int:
        with self._lock:
            self._waiting = (self._waiting + text)[-_MOST_CHARACTERS:]
        sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def take(self) -> str:
        """The next piece to send."""
        with self._lock:
            piece, self._waiting = self._waiting[:_PIECE_CHARACTERS], self._waiting[_PIECE_CHARACTERS:]
        return piece

    def give_back(self, piece: str) -> None:
        """It did not arrive: it goes first next time."""
        with self._lock:
            self._waiting = (piece + self._waiting)[-_MOST_CHARACTERS:]
