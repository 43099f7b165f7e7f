"""Inside a measured kernel: prepares the machine, runs the cases, and keeps each result on disk as it comes."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.cases.model import CaseResult
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab.journal import Journal
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind

# A case in which the agent dies each time would else be begun for ever.
_MOST_BEGINNINGS = 3
# Trouble of ours in one case gets one more try.
_TRIES = 2
_LONGEST_REASON = 500


class Cases(Protocol):
    """Runs one case with its settings, and says whether the machine's settings outlived it."""

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult: ...

    def verify(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class CaseLoop:
    """The cases of one boot on all core types.

    `results` are CaseResults as JSON, those that an agent of this same boot journaled to begin with; the list grows, so
    that what is there counts however the loop ends.
    """

    journal: Journal
    position: int
    cases: Sequence[PlannedCase]
    cores: Sequence[CoreKind]
    begun: Mapping[tuple[str, str, str], int]
    results: list[dict[str, Any]]
    log: Log
    tell: Callable[[str], None]

    def run(self, runner: Cases) -> None:
        """Run what has no result yet. Raises StoppedError."""
        results = self.results
        ready = {(r["benchmark"], r["case"], r["core_type"]) for r in results}
        total = len(self.cases) * len(self.cores)
        for core in self.cores:
            for case in self.cases:
                if (case.benchmark, case.case, core.name) in ready:
                    continue
                self.tell(f"boot {self.position}: case {len(results) + 1} of {total}, {case.benchmark}/{case.case}")
                result = asdict(self._result(runner, case, core))
                self.journal.append("case", position=self.position, result=result)
                results.append(result)

    def _result(self, runner: Cases, case: PlannedCase, core: CoreKind) -> CaseResult:
        names = {"benchmark": case.benchmark, "case": case.case, "core_type": core.name}
        times = self.begun.get((case.benchmark, case.case, core.name), 0)
        if times >= _MOST_BEGINNINGS:
            return _trouble(case, core, f"the agent ended {times} times while it ran")
        self.journal.append("case-begun", position=self.position, **names)
        for left in reversed(range(_TRIES)):
            result = self._once(runner, case, core)
            self.log.info("case-ended", **names, outcome=result.outcome, reason=result.reason)
            if result.outcome != "infrastructure" or not left:
                break
        return result

    @staticmethod
    def _once(runner: Cases, case: PlannedCase, core: CoreKind) -> CaseResult:
        try:
            result = runner.run(case, core)
            changed = runner.verify()
        except InfrastructureError as error:
            return _trouble(case, core, str(error))
        if changed:
            reason = f"settings changed while it ran: {'; '.join(changed)}"
            return replace(result, outcome="infrastructure", reason=reason[:_LONGEST_REASON], values={})
        return result


def _trouble(case: PlannedCase, core: CoreKind, reason: str) -> CaseResult:
    return CaseResult(
        benchmark=case.benchmark,
        version=case.version,
        case=case.case,
        core_type=core.name,
        outcome="infrastructure",
        reason=reason[:_LONGEST_REASON],
    )


class Deadline:
    """Sets `stop` when the time of a boot is over. The time counts from the kernel's start, whatever the agent does."""

    def __init__(self, seconds: float, stop: threading.Event, log: Log) -> None:
        left = seconds - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._stop = stop
        self._log = log
        self._timer = threading.Timer(max(0.0, left), self._end)
        self._timer.daemon = True
        self.is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()
        # If its time came just now, all that it does is done when this returns.
        self._timer.join()

    def _end(self) -> None:
        self.is_over = True
        self._log.failure("boot-out-of-time")
        self._stop.set()
