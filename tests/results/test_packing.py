"""Measurements come back from their rows as they were stored, however many find room in one."""

from collections.abc import Sequence

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import UniqueViolation

from server.core import clock
from server.lab.models import Boot
from server.results.models import PLACES, Measurement, PackedValues
from server.results.packing import MeasuredCase, copy_measurements
from tests.builders import build_boot, build_case, build_metric, build_session, build_version

pytestmark = pytest.mark.django_db
Told = tuple[int, int, int, int, list[float]]


def boot() -> Boot:
    return build_boot(build_session(boots_per_side=0), 0, "base", measured=True)


def measured(of: Boot, sizes: Sequence[int], metric: str = "time") -> list[MeasuredCase]:
    core_type = of.session.machine.core_types.get(name="all").pk
    version = build_version(build_case()).pk
    return [
        MeasuredCase(
            build_case(f"case-{place}").pk,
            build_metric(metric).pk,
            core_type,
            version,
            place % 3,
            [place + run / 7 for run in range(size)],
        )
        for place, size in enumerate(sizes)
    ]


def told(rows: Sequence[MeasuredCase]) -> list[Told]:
    return sorted((row.case_id, row.metric_id, row.version_id, row.warmup, list(row.values)) for row in rows)


def stored(of: Boot) -> list[Told]:
    columns = ("case_id", "metric_id", "version_id", "warmup", "values")
    return sorted(tuple(row) for row in Measurement.objects.filter(boot=of).order_by().values_list(*columns))


def test_cases_of_one_metric_share_a_row() -> None:
    of = boot()
    given = measured(of, [3, 1, 5]) + measured(of, [2, 4], "cycles")
    copy_measurements([(of.pk, given[::-1])], clock.now())
    assert stored(of) == told(given)
    assert PackedValues.objects.filter(boot=of).count() == 2
    assert sorted(Measurement.objects.order_by().values_list("number", flat=True)) == [1, 2, 3, 4, 5]


def test_measurement_is_known_by_its_row_and_place() -> None:
    of = boot()
    copy_measurements([(of.pk, measured(of, [2, 2]))], clock.now())
    row = PackedValues.objects.get()
    assert sorted(Measurement.objects.values_list("pk", flat=True)) == [row.pk * PLACES + 1, row.pk * PLACES + 2]


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_what_finds_no_room_is_in_the_next_row(sizes: list[int]) -> None:
    with transaction.atomic():
        of = boot()
        given = measured(of, sizes)
        copy_measurements([(of.pk, given)], clock.now())
        assert stored(of) == told(given)
        for row in PackedValues.objects.filter(boot=of):
            assert len(row.cases) == 1 or len(row.values) * 8 < 2000
        transaction.set_rollback(True)


def test_cases_of_one_value_do_not_reach_the_places_of_a_row() -> None:
    of = boot()
    given = measured(of, [1] * 300)
    copy_measurements([(of.pk, given)], clock.now())
    assert stored(of) == told(given)
    assert all(len(row.cases) < PLACES for row in PackedValues.objects.all())


def test_boot_cannot_be_stored_twice() -> None:
    of = boot()
    given = measured(of, [3, 1, 400, 5])
    copy_measurements([(of.pk, given)], clock.now())
    with pytest.raises(UniqueViolation), transaction.atomic():
        copy_measurements([(of.pk, given)], clock.now())
    assert stored(of) == told(given)


def test_a_row_of_few_values_is_not_kept_apart_from_its_table() -> None:
    of = boot()
    copy_measurements([(of.pk, measured(of, [4] * 100))], clock.now())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(pg_column_size(p.*)), pg_relation_size(c.reltoastrelid) FROM results_packedvalues p, pg_class c"
            " WHERE c.oid = p.tableoid GROUP BY 2"
        )
        longest, apart = cursor.fetchone()
    assert longest < 2000
    assert apart == 0


def test_case_that_was_measured_is_not_deleted() -> None:
    of = boot()
    copy_measurements([(of.pk, measured(of, [3]))], clock.now())
    with pytest.raises(IntegrityError):
        build_case("case-0").delete()
    of.delete()
    assert not PackedValues.objects.exists()
