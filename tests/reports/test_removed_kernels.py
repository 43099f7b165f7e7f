import pytest

from server.builds.models import Build, BuildState
from server.reports.stages import builds_stage, rows_of_many
from tests.builders import build_build, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def test_series_that_was_measured_had_its_kernels_even_when_their_files_are_gone() -> None:
    series = build_series()
    session = build_session(series, state="done")
    for state in (BuildState.EXPIRED, BuildState.WANTED, BuildState.FAILED):
        Build.objects.filter(pk=session.base_build_id).update(state=state)
        stage = builds_stage(rows_of_many([series])[0])
        assert (stage.state, stage.detail) == ("done", "2 of 2 kernels")


def test_series_that_waits_for_a_kernel_to_be_built_again_is_not_there_yet() -> None:
    build_machine()
    series = build_series()
    build_build(series.base, state=BuildState.EXPIRED, build_id="ab")
    build_build(series.head)
    stage = builds_stage(rows_of_many([series])[0])
    assert (stage.state, stage.detail) == ("running", "1 of 2 kernels")
