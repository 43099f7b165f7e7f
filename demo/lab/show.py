"""`python -m demo --lab`: a full site to browse, in a stack of its own, all of it simulated and marked so."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from demo.processes import Claim, DemoError, undisturbed
from demo.progress import clock_text
from demo.world import ROOT, forget_world, join_service
from scripts.stack import Stack, stack_down, stack_status, stack_up

# The stack knows it, not whoever starts it: nobody can serve this database without the mark on its pages.
SETTINGS = {"TIDEMARK_SIMULATED": "1", "TIDEMARK_DISPATCHER": "null"}
# Nobody works here but the loader: workers would look for the trees and machines that are none.
PROGRAMS = ("web",)
_INTERRUPTED = 130
_SILENCE_SECONDS = 15.0


class Teller:
    """Lines with the time since the beginning; while nothing new is said, what goes on is said again."""

    def __init__(self, out: TextIO, *, silence: float = _SILENCE_SECONDS) -> None:
        self._out, self._silence = out, silence
        self._began = self._said = time.monotonic()
        self._last = ""
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            self._last = text
            self._write(text)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._repeat, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _repeat(self, over: threading.Event) -> None:
        while not over.wait(self._silence / 10):
            with self._lock:
                if time.monotonic() - self._said >= self._silence:
                    self._write(f"  still: {self._last.strip()}")

    def _write(self, text: str) -> None:
        self._said = time.monotonic()
        self._out.write(f"{clock_text(self._said - self._began):>6}  {text}\n")
        self._out.flush()


class Lab:
    """One lab in the directory `local`, which is not that of the demo with the real processes."""

    def __init__(self, local: Path, claim: Claim, out: TextIO, *, once: bool, fresh: bool) -> None:
        self._local, self._claim, self._out = local, claim, out
        self._once, self._fresh = once, fresh
        self._teller = Teller(out)

    @property
    def _whole(self) -> Path:
        """There once everything was loaded."""
        return self._local / "loaded"

    def run(self) -> int:
        require_own_database(os.environ)
        if self._fresh or not self._whole.exists():
            self._forget()
        code = _INTERRUPTED
        try:
            code = self._open()
            if not self._once:
                self._stay()
        except KeyboardInterrupt:
            if code == _INTERRUPTED:
                self._say("interrupted; the same command begins anew")
        finally:
            with undisturbed():
                stack_down(ROOT, local=self._local)
        return code

    def _forget(self) -> None:
        stack_down(ROOT, local=self._local)
        self._whole.unlink(missing_ok=True)
        forget_world(self._local, os.environ)

    def _open(self) -> int:
        self._teller.say("PostgreSQL, Redis and the web server start")
        with self._teller.going_on():
            stack = stack_up(ROOT, settings=SETTINGS, only=PROGRAMS, durable=False, local=self._local)
            self._claim.tell_url(stack.url)
            join_service(stack)
            if not self._whole.exists():
                self._load(stack)
        return self._tell(stack)

    def _load(self, stack: Stack) -> None:
        from demo.lab import load  # noqa: PLC0415 (needs the stack's settings)

        self._teller.say(f"{stack.url} fills while you look:")
        load.load_history(self._teller.say)
        load.load_series(self._teller.say)
        load.rest()
        self._whole.touch()

    def _tell(self, stack: Stack) -> int:
        from demo.lab import load  # noqa: PLC0415

        found = list(load.expectations())
        self._say("", *(f"  {'ok    ' if one.ok else 'FAILED'} {one.what}" for one in found), "")
        self._say(*(f"  {stack.url}{path}  {about}" for path, about in load.pages()))
        password = load.admit()
        self._say(
            f"  {stack.url}/login/  as {load.PERSON}, password {password}: triage, machines, mails",
            "",
            "  All of it is simulated, and every page says so.",
        )
        return 0 if all(one.ok for one in found) else 1

    def _stay(self) -> None:
        stack, _ = stack_status(ROOT, local=self._local)
        if stack is None:
            return
        self._say(f"\nthe lab is at {stack.url}; Ctrl-C ends it, the same command shows it again at once")
        while stack_status(ROOT, local=self._local)[0] is not None:
            time.sleep(1)
        self._say("the lab was ended")

    def _say(self, *lines: str) -> None:
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()


def require_own_database(environ: Mapping[str, str]) -> None:
    """Raise a DemoError where the environment names a database: made-up results belong into none but the lab's own."""
    named = [name for name in ("TIDEMARK_DATABASE_URL", "TIDEMARK_DATABASE_URL_FILE") if environ.get(name)]
    if named:
        raise DemoError(f"{named[0]} names a database of yours: the simulated lab is not loaded into it; unset it")
