"""How measurements become cells."""

import pytest

from server.detection.trials.judgement import read_cells
from server.lab.models import Boot, Session
from server.results.models import Measurement, Metric
from tests.builders import build_boot, build_case, build_measurement, build_metric, build_series, build_session, forget
from tests.detection.measured import STEADY, measured_session, physical

pytestmark = pytest.mark.django_db


def test_cells_hold_values_without_warmup_in_the_order_of_positions() -> None:
    session = build_session(build_series(), physical("h1", "haswell"), state=Session.State.DONE)
    metric = build_metric(resolution=0.25)
    # Results come in in any order.
    for boot in session.boots.order_by("-position"):
        build_measurement(boot, [9.0, 100.0 + boot.position, 2.0], build_case("copy"), metric)
    cell = read_cells([session])[0]
    assert cell.values.base == [[100.0, 2.0], [103.0, 2.0]]
    assert cell.values.patched == [[101.0, 2.0], [102.0, 2.0]]
    assert (cell.values.base_positions, cell.values.patched_positions) == ([0, 3], [1, 2])
    assert (cell.values.resolution, cell.values.min_effect) == (0.25, 0.01)
    assert cell.values.name == f"session {session.pk}, mm-basic/copy, time"


def test_boots_that_gave_nothing_are_empty_and_those_to_come_are_not_there() -> None:
    session = measured_session(build_series(), physical("h1", "haswell"), {"copy": STEADY}, boots_per_side=2)
    lost = build_boot(session, 4, Boot.Arm.BASE)
    Boot.objects.filter(pk=lost.pk).update(state=Boot.State.FAILED)
    build_boot(session, 5, Boot.Arm.PATCHED)
    forget(Measurement.objects.filter(boot__session=session, boot__position=1))
    cell = read_cells([session])[0].values
    assert [len(values) for values in cell.base] == [5, 5, 0]
    assert [len(values) for values in cell.patched] == [0, 5]


def test_metrics_that_only_explain_make_no_cells() -> None:
    session = measured_session(build_series(), physical("h1", "haswell"), {"copy": STEADY})
    misses = build_metric("misses", better=Metric.Better.NONE)
    for boot in session.boots.all():
        build_measurement(boot, [1.0, 2.0], build_case("copy"), misses)
    assert [cell.metric.name for cell in read_cells([session])] == ["time"]


def test_an_impossible_resolution_is_refused_by_the_name_of_the_cell() -> None:
    session = measured_session(build_series(), physical("h1", "haswell"), {"copy": STEADY})
    Metric.objects.update(resolution=-1.0)
    with pytest.raises(ValueError, match=f"session {session.pk}, mm-basic/copy, time: resolution"):
        read_cells([session])
