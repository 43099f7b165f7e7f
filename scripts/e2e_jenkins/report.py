"""What each step came to, as it happens and as a table."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class NotRun(Exception):  # noqa: N818 (no error: an answer)
    """A step for which the operator gave nothing; the message says what it would need."""


class StepError(Exception):
    """A step did not come to what it should; the message says what was there instead."""


@dataclass
class Step:
    """One step; `said` is what it found, in words."""

    name: str
    ok: bool = False
    said: str = ""
    seconds: float = 0.0
    ran: bool = True

    @property
    def result(self) -> str:
        return ("ok" if self.ok else "FAILED") if self.ran else "not run"


@dataclass
class Report:
    """All steps so far. `quiet` prints nothing: for tests."""

    quiet: bool = False
    steps: list[Step] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No step failed, and some ran."""
        ran = [step for step in self.steps if step.ran]
        return bool(ran) and all(step.ok for step in ran)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A StepError ends the step; the run goes on with the next, which may fail for the same reason."""
        step = Step(name)
        self.steps.append(step)
        started = time.monotonic()
        try:
            yield step
            step.ok = True
        except NotRun as answer:
            step.ran, step.said = False, str(answer)
        except StepError as error:
            step.said = str(error)
        except Exception as error:
            step.said = f"{type(error).__name__}: {error}"
            raise
        finally:
            step.seconds = time.monotonic() - started
            self._print(step)

    def verdict(self) -> str:
        """All of it in one line: what was not tried is said as plainly as what failed."""
        failed = [step.name for step in self.steps if step.ran and not step.ok]
        skipped = [f"{step.name} ({step.said})" for step in self.steps if not step.ran]
        untried = f"{len(skipped)} of {len(self.steps)} steps not run: {'; '.join(skipped)}"
        if not self.ok:
            told = f"FAILED: {'; '.join(failed) or 'no step ran'}"
            return f"{told}; {untried}" if skipped else told
        return (
            f"incomplete: what ran is ok, but {untried}" if skipped else f"complete: all {len(self.steps)} steps are ok"
        )

    def table(self) -> str:
        width = max((len(step.name) for step in self.steps), default=0)
        lines = [f"{'step':{width}}  result   seconds"]
        lines += [f"{s.name:{width}}  {s.result:7}  {s.seconds:7.1f}  {s.said}" for s in self.steps]
        return "\n".join(lines)

    def _print(self, step: Step) -> None:
        if not self.quiet:
            print(f"{step.result}: {step.name} ({step.seconds:.1f} s) {step.said}", flush=True)
