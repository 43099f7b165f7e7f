"""One display of all stages: redrawn in place on a terminal; elsewhere a line for each change, and when it is quiet."""

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

_MARKS = {"waiting": " ", "running": ">", "done": "+", "failed": "x"}
_TITLE_WIDTH = 34
_REDRAW_SECONDS = 1.0
# Nobody is left without a word for longer, where nothing is redrawn.
_QUIET_SECONDS = 15.0


def clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _one_line(text: str) -> str:
    """Reasons quote compilers and consoles: no line end and no control character may tear the display."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


@dataclass
class _Line:
    title: str
    expected: float
    state: str = "waiting"
    detail: str = ""
    started: float = 0.0
    seconds: float = 0.0


class Display:
    """Stages are started, told details and ended in any order; the first that runs is the current one."""

    def __init__(
        self,
        titles: Mapping[str, str],
        expected: Mapping[str, float],
        out: TextIO,
        *,
        tty: bool | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = {name: _Line(title, expected.get(name, 0.0)) for name, title in titles.items()}
        self._out = out
        self._tty = out.isatty() if tty is None else tty
        self._now = now
        self._began = now()
        self._drawn = 0
        self._written = now()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def start(self, name: str) -> None:
        with self._lock:
            line = self._lines[name]
            if line.state != "waiting":
                return
            line.state, line.started = "running", self._now()
            self._changed(line)

    def tell(self, name: str, detail: str) -> None:
        with self._lock:
            line, detail = self._lines[name], _one_line(detail)
            if line.detail != detail:
                line.detail = detail
                self._changed(line)

    def finish(self, name: str, detail: str = "", *, seconds: float | None = None) -> None:
        """End a stage; `seconds` is what the service's rows say, which counts when this display came later."""
        self._end(name, "done", detail, seconds)

    def fail(self, name: str, reason: str) -> None:
        self._end(name, "failed", reason, None)

    def close(self) -> None:
        """Draw a last time; what is printed afterwards stands below."""
        if not self._closed.is_set():
            self._closed.set()
            with self._lock:
                self._draw()

    def seconds(self) -> dict[str, float]:
        return {name: line.seconds for name, line in self._lines.items() if line.state == "done"}

    def total(self) -> float:
        return self._now() - self._began

    def _end(self, name: str, state: str, detail: str, seconds: float | None) -> None:
        with self._lock:
            line = self._lines[name]
            if line.state in {"done", "failed"}:
                return
            passed = self._now() - line.started if line.state == "running" else 0.0
            line.state, line.seconds = state, max(passed, seconds or 0.0)
            line.detail = _one_line(detail) or line.detail
            self._changed(line)

    def _changed(self, line: _Line) -> None:
        if self._tty:
            self._draw()
        else:
            self._write(line, self._words(line))

    def _write(self, line: _Line, words: str) -> None:
        self._written = self._now()
        self._out.write(f"[{clock_text(self.total()):>6}] {line.title}: {words}\n")
        self._out.flush()

    def break_silence(self) -> None:
        """Say what runs, if nothing was said for a while."""
        if self._now() - self._written < _QUIET_SECONDS:
            return
        for line in self._lines.values():
            if line.state == "running":
                outlook = self._outlook() or "longer than expected"
                self._write(line, "; ".join(part for part in (line.detail or "running", outlook) if part))
                return

    def _words(self, line: _Line) -> str:
        if line.state == "running":
            return line.detail or f"started (expected {clock_text(line.expected)})"
        words = f"{line.state} in {clock_text(line.seconds)}"
        return f"{words}: {line.detail}" if line.detail else words

    def _tick(self) -> None:
        while not self._closed.wait(_REDRAW_SECONDS):
            with self._lock:
                if self._closed.is_set():
                    return
                if self._tty:
                    self._draw()
                else:
                    self.break_silence()

    def _draw(self) -> None:
        if not self._tty:
            return
        width = shutil.get_terminal_size().columns - 1
        rows = [self._row(line)[:width] for line in self._lines.values()]
        rows.append(f"  {'':{_TITLE_WIDTH}} {clock_text(self.total()):>6}  {self._outlook()}"[:width].rstrip())
        # One line up for each that was drawn, then each is written anew and its rest cleared.
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(up + "".join(f"\r{row}\x1b[K\n" for row in rows))
        self._out.flush()
        self._drawn = len(rows)

    def _row(self, line: _Line) -> str:
        if line.state == "waiting":
            timing = f"{'':6} of {clock_text(line.expected):>5}"
        else:
            seconds = self._now() - line.started if line.state == "running" else line.seconds
            timing = f"{clock_text(seconds):>6} of {clock_text(line.expected):>5}"
        return f"{_MARKS[line.state]} {line.title:{_TITLE_WIDTH}} {timing}  {line.detail}"

    def _outlook(self) -> str:
        slow, left = self._slowness(), 0.0
        for line in self._lines.values():
            if line.state == "waiting":
                left += slow * line.expected
            elif line.state == "running":
                left += max(slow * line.expected - (self._now() - line.started), 0.0)
        return f"about {clock_text(left)} to go" if left else ""

    def _slowness(self) -> float:
        """How many times longer than expected it took so far, at least 1: a busy host stays busy for the rest."""
        took = expected = 0.0
        for line in self._lines.values():
            running = self._now() - line.started if line.state == "running" else 0.0
            if line.state == "done" or running > line.expected:
                took += running or line.seconds
                expected += line.expected
        return max(took / expected, 1.0) if expected else 1.0
