"""What the agent costs while it measures, for real but briefly; `make bench-agent` takes half a minute."""

import os

import pytest

from bench.processes import Seen
from bench.sandbox.agent import MOST_MEMORY_MB, Cost, measured_cost, rows


def build_cost(**changes: object) -> Cost:
    about: dict[str, object] = {
        "seconds": 30.0,
        "agent": Seen("agent", peak_kb=20 * 1024),
        "all_kb": 40 * 1024,
        "cpu_seconds": 0.1,
        "switches": 60,
        "on_measured": 0,
        "program_cpus": "1",
        "size": 300_000,
    }
    return Cost(**{**about, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, 0),
        ({"cpu_seconds": 0.2}, 1),
        ({"on_measured": 1}, 1),
        ({"agent": Seen("agent", peak_kb=50 * 1024)}, 1),
        ({"size": 2_000_000}, 1),
    ],
)
def test_limit_that_does_not_hold_is_marked(changes: dict[str, object], failed: int) -> None:
    found = rows(build_cost(**changes))
    assert sum("FAIL" in cell for row in found for cell in row) == failed


@pytest.mark.real
def test_agent_sleeps_away_from_the_measured_cpu_while_a_case_runs() -> None:
    measured = max(os.sched_getaffinity(0))
    cost = measured_cost(runs=100, measured=measured)
    # What it costs is the bench's to say: here only that nobody waits by looking again and again.
    assert cost.cpu_seconds < cost.seconds / 4
    assert cost.agent.peak_kb / 1024 < MOST_MEMORY_MB
    assert cost.on_measured == 0 or len(os.sched_getaffinity(0)) == 1
    assert str(measured) in cost.program_cpus.split("; ")
