from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from server.detection.models import Comparison
from server.detection.services import judge_series
from server.results.models import Measurement
from tests.builders import build_series
from tests.detection.measured import SLOWER, STEADY, measured_session, physical

pytestmark = pytest.mark.django_db


def recompute(*arguments: str) -> str:
    out = StringIO()
    call_command("recompute", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def series_id() -> int:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY, "fault-4k": SLOWER}, spread=0.01)
    judge_series(series_id=series.pk)
    return series.pk


def test_stored_comparisons_are_what_their_measurements_give(series_id: int) -> None:
    assert recompute("--check") == "1 findings recomputed, 0 differences\n"


@pytest.mark.usefixtures("series_id")
def test_changed_figure_is_named_and_nothing_is_written() -> None:
    Comparison.objects.filter(case__name="copy").update(ratio=1.5)
    assert ", h1 time of mm-basic/copy (all): ratio is 1.5, now 1\n" in recompute()
    assert Comparison.objects.get(case__name="copy").ratio == 1.5


def test_check_fails_on_a_difference(series_id: int) -> None:
    Comparison.objects.filter(case__name="copy").update(verdict="improved")
    with pytest.raises(CommandError, match="differ"):
        recompute("--check")


def test_missing_and_surplus_comparisons_are_differences(series_id: int) -> None:
    Measurement.objects.filter(case__name="copy").delete()
    assert "h1 time of mm-basic/copy (all): comparison is there, now missing" in recompute()


def test_one_series_can_be_asked_for(series_id: int) -> None:
    assert recompute("--series", str(series_id + 1)).startswith("0 findings")
