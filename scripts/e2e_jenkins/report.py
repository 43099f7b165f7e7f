"""What each step came to, as it happens and as a table."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class StepError(Exception):
    """A step did not come to what it should; the message says what was there instead."""


@dataclass
class Step:
    """One step; `said` is what it found, in words."""

    name: str
    ok: bool = False
    said: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """All steps so far. `quiet` prints nothing: for tests."""

    quiet: bool = False
    steps: list[Step] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.steps) and all(step.ok for step in self.steps)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A StepError ends the step; the run goes on with the next, which may fail for the same reason."""
        step = Step(name)
        self.steps.append(step)
        started = time.monotonic()
        try:
            yield step
            step.ok = True
        except StepError as error:
            step.said = str(error)
        except Exception as error:
            step.said = f"{type(error).__name__}: {error}"
            raise
        finally:
            step.seconds = time.monotonic() - started
            self._print(step)

    def table(self) -> str:
        width = max((len(step.name) for step in self.steps), default=0)
        lines = [f"{'step':{width}}  result  seconds"]
        lines += [f"{s.name:{width}}  {'ok' if s.ok else 'FAILED':6}  {s.seconds:7.1f}  {s.said}" for s in self.steps]
        return "\n".join(lines)

    def _print(self, step: Step) -> None:
        if not self.quiet:
            print(f"{'ok' if step.ok else 'FAILED'}: {step.name} ({step.seconds:.1f} s) {step.said}", flush=True)
