import pytest
from pytest_django import DjangoAssertNumQueries

from server.detection.findings.table import comparison_table, finding_vector
from server.lab.models import Session
from tests.builders import build_series
from tests.detection.measured import SLOWER, STEADY, failed_session, judge_series, measured_session, physical

pytestmark = pytest.mark.django_db


def test_vector_holds_each_uarch_with_the_cell_that_moved_most(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER, "copy": (100.0, 110.0)})
    failed_session(series, physical("z3", "zen3"), "lost power")
    finding = judge_series(series_id=series.pk)
    assert finding is not None
    with django_assert_num_queries(1):
        haswell, zen3 = finding_vector(finding)
    assert (haswell.uarch, haswell.verdict) == ("haswell", "regressed")
    assert haswell.cell is not None
    assert (haswell.cell.session.machine.name, haswell.cell.case.name, haswell.cell.metric.unit) == (
        "h1",
        "fault-4k",
        "ns",
    )
    assert haswell.cell.ratio == pytest.approx(9871 / 5762)
    assert (zen3.verdict, zen3.reason, zen3.cell) == ("inconclusive", "not measured: z3: lost power", None)


def test_table_has_a_row_for_each_case_and_a_column_for_each_machine(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    series = build_series()
    measured_session(series, physical("z1", "zen1"), {"fault-4k": STEADY})
    measured_session(series, physical("h1", "haswell"), {"fault-4k": SLOWER, "copy": STEADY})
    judge_series(series_id=series.pk)
    with django_assert_num_queries(4):
        table = comparison_table(Session.objects.filter(series=series))
    assert [column.machine for column in table.machines] == ["h1", "z1"]
    assert [(row.case, row.moved) for row in table.rows] == [("copy", False), ("fault-4k", True)]
    copy, fault = table.rows
    assert copy.cells[0] is not None
    assert copy.cells[1] is None
    assert [cell.verdict if cell else None for cell in fault.cells] == ["regressed", "unchanged"]


def test_table_of_a_series_that_is_not_judged_has_no_rows() -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    table = comparison_table(Session.objects.filter(series=series))
    assert ([column.machine for column in table.machines], table.rows) == (["h1"], ())
