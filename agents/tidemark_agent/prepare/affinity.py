"""The agent's own CPUs: it does its work away from the measured ones."""

import os
from pathlib import Path

from tidemark_agent.prepare.cpu_list import cpu_list
from tidemark_agent.prepare.layout import Layout
from tidemark_agent.prepare.model import Setting

_TASKS = Path("/proc/self/task")
_NAME = "agent-cpus"


class AgentCpus:
    """All threads of this process; its children inherit the CPUs of the thread that starts them."""

    def __init__(self) -> None:
        self._before: frozenset[int] | None = None

    def confine(self, layout: Layout) -> Setting:
        before = frozenset(os.sched_getaffinity(0))
        wanted = cpu_list(layout.housekeeping)
        trouble = _set(layout.housekeeping)
        self._before = before if self._before is None else self._before
        after = cpu_list(frozenset(os.sched_getaffinity(0)))
        if trouble:
            return Setting(_NAME, wanted, cpu_list(before), after, "tolerated", trouble)
        return Setting(_NAME, wanted, cpu_list(before), after, "kept" if after == cpu_list(before) else "set")

    def release(self) -> tuple[str, ...]:
        before, self._before = self._before, None
        trouble = _set(before) if before else ""
        return (trouble,) if trouble else ()


def _set(cpus: frozenset[int]) -> str:
    """Why it could not be, or ""."""
    for task in sorted(_TASKS.iterdir()):
        try:
            os.sched_setaffinity(int(task.name), cpus)
        except ProcessLookupError:
            continue  # A thread that has just ended.
        except OSError as error:
            return f"the agent cannot run on CPUs {cpu_list(cpus)}: {error.strerror}"
    return ""
