"""A log of bounded size: its beginning and its end are kept, what lies between is counted and left out."""

import os

# However full the log is already, each further step of a build may say this part of the limit.
_LEAST_PART = 32
_CHUNK = 1024 * 1024
_NOTE_BYTES = 100


class CappedLog:
    """Writes to `target`, a descriptor that can be read and written anywhere, from the end of what is there.

    The first half of the room is filled once. Then the second half is written round and round, and put in order at
    the end.
    """

    def __init__(self, target: int, limit: int) -> None:
        self._target = target
        start = os.lseek(target, 0, os.SEEK_END)
        room = max(limit - start, limit // _LEAST_PART)
        self._ring = start + room // 2
        self._end = start + max(room, 2) - (_NOTE_BYTES if room > 4 * _NOTE_BYTES else 0)
        self._at = start
        self._is_full = False
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Never fails: what a full disk does not take is left out as well."""
        while data:
            piece = data[: self._end - self._at]
            data = data[len(piece) :]
            try:
                written = os.pwrite(self._target, piece, self._at)
            except OSError:
                self._dropped += len(piece) + len(data)
                return
            if self._is_full:
                self._dropped += written
            data = piece[written:] + data
            self._at += written
            if self._at >= self._end:
                self._at, self._is_full = self._ring, True

    def close(self) -> None:
        """Put the end of the log behind its beginning, with a line between that says how much is missing."""
        if not self._dropped:
            return
        old = self._read(self._at, self._end) if self._is_full else b""
        new = self._read(self._ring, self._at) if self._is_full else b""
        # Whole lines only, where there are lines.
        cut = old.find(b"\n") + 1
        missing = self._dropped + cut
        note = f"\n[tidemark: {missing} bytes ({missing // 1024**2} MiB) of output left out here]\n".encode()
        at = self._ring if self._is_full else self._at
        try:
            for piece in (note, memoryview(old)[cut:], new):
                at += os.pwrite(self._target, piece, at)
            os.ftruncate(self._target, at)
        except OSError:
            return

    def _read(self, start: int, end: int) -> bytes:
        """That part of the log, which is at most half of its limit."""
        return os.pread(self._target, end - start, start)


def pump(source: int, log: CappedLog, most: int = 64) -> bool:
    """Move what waits in the non-blocking pipe into the log, `most` pieces; False at the pipe's end."""
    for _ in range(most):
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)
    return True
