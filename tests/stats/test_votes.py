import dataclasses

import numpy as np
import pytest

from server.stats.changepoints.causes import vote
from server.stats.changepoints.shifts import Trace, trace
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.fleets import MACHINES, everywhere, fleet


def _traces(noise: float, seed: int = 3) -> list[Trace]:
    return [
        trace(t, [60])
        for t in fleet(everywhere("pipe", 60, 0.03), noise=noise, seed=seed, benchmarks=["pipe"], machines=MACHINES)
    ]


@pytest.mark.parametrize("guess", [57, 60, 63])
def test_all_machines_together_find_the_revision(guess: int) -> None:
    assert vote(_traces(0.01), guess) == 60


def test_many_votes_place_a_change_better_than_one() -> None:
    together, alone = [], []
    for seed in range(20):
        traces = _traces(0.02, seed)
        together.append(abs(vote(traces, 60) - 60))
        alone.append(abs(vote(traces[:1], 60) - 60))
    assert np.mean(together) < np.mean(alone) / 2


def test_hiccup_on_one_machine_does_not_decide() -> None:
    traces = _traces(0.01)
    values = traces[0].timeline.values.copy()
    values[57] *= 3
    traces[0] = trace(dataclasses.replace(traces[0].timeline, values=values), [60])
    assert vote(traces, 60) == 60


def test_where_nobody_measured_the_first_measured_revision_is_taken() -> None:
    kept = np.r_[0:58, 63:120]
    traces = [
        trace(
            dataclasses.replace(t.timeline, values=t.timeline.values[kept], revisions=t.timeline.revisions[kept]), [63]
        )
        for t in _traces(0.01)
    ]
    assert vote(traces, 60) == 63


def test_machine_that_measures_between_tells_the_others() -> None:
    kept = np.r_[0:58, 63:120]
    traces = _traces(0.01)
    sparse = dataclasses.replace(
        traces[0].timeline, values=traces[0].timeline.values[kept], revisions=traces[0].timeline.revisions[kept]
    )
    assert vote([trace(sparse, [63]), *traces[1:]], 63) == 60


def test_without_votes_the_guess_stands() -> None:
    assert vote([], 17) == 17


def test_guess_at_the_end_of_a_timeline_is_no_error() -> None:
    short = TimelineValues("short", np.array([1.0, 2.0, 3.0]), np.arange(3))
    assert 0 <= vote([trace(short)], 2) <= 2
