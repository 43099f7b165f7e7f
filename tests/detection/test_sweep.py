from typing import Any

import pytest
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks, Settings

from server.detection.models import Finding
from server.lab.models import Session
from server.sources.models import Series
from tests.builders import build_series, build_session
from tests.detection.measured import STEADY, measured_session, physical, virtual
from workers import detection

pytestmark = pytest.mark.django_db

Sent = list[tuple[str, tuple[int | str, ...]]]


@pytest.fixture
def swept(sent_tasks: Sent, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Any:
    def sweep() -> Sent:
        sent_tasks.clear()
        with django_capture_on_commit_callbacks(execute=True):
            detection.sweep()
        return sent_tasks

    return sweep


def test_series_whose_sessions_are_over_is_found_until_it_is_judged(swept: Any) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    assert swept() == [("detection.judge", (series.pk,))]
    detection.judge(series.pk)
    assert Finding.objects.get().series == series
    assert swept() == []


def test_series_with_a_session_that_goes_on_is_left_alone(swept: Any) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    build_session(series, physical("z1", "zen1"), state=Session.State.RUNNING)
    assert swept() == []


def test_series_without_sessions_or_with_canceled_ones_only_is_left_alone(swept: Any) -> None:
    build_series()
    build_session(build_series(), physical("h1", "haswell"), state=Session.State.CANCELED)
    assert swept() == []


def test_superseded_series_is_left_alone(swept: Any) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    Series.objects.filter(pk=series.pk).update(state=Series.State.SUPERSEDED)
    assert swept() == []


@pytest.mark.parametrize("judged", [True, False])
def test_virtual_series_is_found_only_where_it_would_be_judged(swept: Any, settings: Settings, judged: bool) -> None:
    settings.VIRTUAL_VERDICTS = judged
    measured_session(build_series(), virtual("vm", "haswell"), {"copy": STEADY})
    assert len(swept()) == judged
