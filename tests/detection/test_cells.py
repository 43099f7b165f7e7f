"""How measurements become cells; nothing here needs the database."""

import pytest

from server.detection.cells import _Collected
from server.lab.models import Boot
from server.results.models import Benchmark, Case, Measurement, Metric


def collected(resolution: float) -> _Collected:
    benchmark = Benchmark(name="mm-basic")
    metric = Metric(benchmark=benchmark, name="time", better=Metric.Better.LOWER, resolution=resolution)
    boot = Boot(session_id=7, arm=Boot.Arm.BASE, position=0)
    cell = _Collected(Measurement(boot=boot, case=Case(benchmark=benchmark, name="copy"), metric=metric))
    cell.add(Measurement(boot=boot, values=[9.0, 1.0, 2.0], warmup=1))
    return cell


def test_cells_hold_values_without_warmup_and_are_named_by_session_case_and_metric() -> None:
    cell = collected(0.25).cell()
    assert (cell.base, cell.base_positions, cell.resolution) == ([[1.0, 2.0]], [0], 0.25)
    assert cell.name == "session 7, mm-basic/copy, time"


def test_an_impossible_resolution_is_refused_by_the_name_of_the_cell() -> None:
    with pytest.raises(ValueError, match="session 7, mm-basic/copy, time: resolution"):
        collected(-1.0).cell()
