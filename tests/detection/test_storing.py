"""Comparisons of a family, written at once."""

from typing import get_type_hints

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from server import stats
from server.core import clock
from server.detection.models import Comparison, Verdict
from server.detection.trials.look import store_comparisons
from server.lab.models import Session
from tests.builders import build_case, build_metric, build_session

pytestmark = pytest.mark.django_db


def comparison(session: Session, case: str, **fields: object) -> Comparison:
    core_type = session.machine.core_types.get(name="all")
    values = {
        "verdict": Verdict.INCONCLUSIVE,
        "base_boots": 4,
        "patched_boots": 4,
        "family_size": 2,
        "min_effect": 0.01,
    }
    return Comparison(
        session=session, case=build_case(case), metric=build_metric(), core_type=core_type, **{**values, **fields}
    )


def test_what_is_written_is_what_is_read() -> None:
    session = build_session()
    reason = 'tab\there, line\nhere, \\N and \\. and "quotes" and é'
    begun = clock.now()
    store_comparisons(
        [
            comparison(
                session, "a", reason=reason, flags=["few-boots", "a,b"], ratio=1.0000000000000002, p_value=1e-300
            ),
            comparison(session, "b", verdict=Verdict.UNCHANGED, mde=0.02),
        ]
    )
    one, other = Comparison.objects.order_by("case__name")
    assert (one.reason, one.flags, one.ratio, one.p_value, one.mde) == (
        reason, ["few-boots", "a,b"], 1.0000000000000002, 1e-300, None,
    )  # fmt: skip
    assert (other.verdict, other.mde, other.flags, other.reason) == ("unchanged", 0.02, [], "")
    assert begun <= one.computed_at == other.computed_at <= clock.now()


def test_none_of_them_is_a_statement_to_be_parsed() -> None:
    session = build_session()
    rows = [comparison(session, f"case-{number}") for number in range(30)]
    with CaptureQueriesContext(connection) as queries:
        store_comparisons(rows)
    assert [query["sql"].partition(" ")[0] for query in queries.captured_queries] == ["COPY"]
    assert Comparison.objects.count() == 30


def test_each_figure_of_the_statistics_has_a_column_of_its_name_and_type() -> None:
    told = get_type_hints(stats.CellComparison)
    for arm in ("base", "patched"):
        del told[arm]
        told |= {f"{arm}_{name}": kind for name, kind in get_type_hints(stats.Arm).items()}
    numbers: dict[str, type] = {"FloatField": float, "PositiveIntegerField": int}
    for name, kind in told.items():
        column = Comparison._meta.get_field(name)
        number = numbers.get(column.get_internal_type())
        assert number is None or kind == (number | None if column.null else number), name
