"""Parts of large tables are made ahead, hold uniqueness over their ends, and give way to whoever stores results."""

import threading
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, connection, transaction

from server.core import clock
from server.core.models import Transition
from server.core.rows import partitions
from server.core.rows.partitions import (
    BOOTS,
    CONDITIONS,
    CUT,
    TRANSITIONS,
    VALUES,
    caught,
    drop_empty,
    make_parts,
    parts,
)
from server.lab.models import Boot, Conditions, Session
from server.results.models import Measurement, PackedValues
from tests.builders import build_case, build_measurement, build_session

pytestmark = pytest.mark.django_db


def boot_of(pk: int) -> Boot:
    """A boot with this id, as it is after years."""
    session = Session.objects.first() or build_session()
    row = session.boots.order_by("position").first()
    assert row is not None
    values = {field.name: getattr(row, field.name) for field in row._meta.concrete_fields if field.name != "id"}
    position = session.boots.count() + pk % 1000
    return Boot.objects.create(**values | {"position": position, "boot_id": "", "state": "planned"}, id=pk)


def planned(table: str, where: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN SELECT * FROM {table} WHERE {where}")  # noqa: S608
        return "\n".join(line for (line,) in cursor.fetchall())


def step(boot: int, after: str = "planned") -> Transition:
    return Transition.objects.create(trace="t", subject="boot", subject_id=boot, after=after)


def test_parts_are_made_ahead_once() -> None:
    assert [parts(table) for table in CUT] == [[0]] * 3
    assert make_parts(5) == [table.part(number) for table in CUT for number in (1, 2, 3)]
    assert make_parts(BOOTS - 1) == []
    # The first boot beyond the end of a part.
    assert make_parts(BOOTS) == [table.part(4) for table in CUT]
    assert caught() == {}


def test_rows_on_both_sides_of_an_end_are_found_and_unique() -> None:
    make_parts(BOOTS)
    case = build_case()
    last, first = boot_of(BOOTS - 1), boot_of(BOOTS)
    for boot in (last, first):
        build_measurement(boot, case=case, values=[1.0, float(boot.pk)])
        Conditions.objects.create(boot=boot, document={"of": boot.pk})
        step(boot.pk)
    read = Measurement.objects.filter(boot__in=[last, first]).order_by("boot").values_list("boot", "values")
    assert [(int(pk), values) for pk, values in read] == [(boot.pk, [1.0, float(boot.pk)]) for boot in (last, first)]
    assert Conditions.objects.get(boot=first).document == {"of": first.pk}
    assert caught() == {}
    for boot in (last, first):
        row = PackedValues.objects.get(boot=boot)
        row.pk = None
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save(force_insert=True)
    first.delete()
    assert not PackedValues.objects.filter(boot_id=BOOTS).exists()


def test_a_boot_is_looked_up_in_its_own_part_alone() -> None:
    make_parts(BOOTS)
    plans = {
        VALUES: planned("results_measurement", f"boot_id IN ({BOOTS}, {BOOTS + 3})"),
        CONDITIONS: planned("lab_conditions", f"boot_id = {BOOTS}"),
        TRANSITIONS: planned("core_transition", f"subject = 'boot' AND subject_id IN ({BOOTS})"),
    }
    for table, plan in plans.items():
        assert table.part(1) in plan
        assert table.part(0) not in plan
        assert table.outside not in plan
    others = planned("core_transition", "subject = 'series' AND subject_id = 3 ORDER BY id")
    assert "core_transition_others" in others
    assert "core_transition_boot" not in others


def test_late_rows_that_were_caught_outside_go_to_a_part_of_their_own() -> None:
    boot = boot_of(20 * BOOTS + 7)
    build_measurement(boot, case=build_case(), values=[3.0, 4.0])
    step(boot.pk)
    assert caught() == {VALUES.name: 1, TRANSITIONS.name: 1}
    made = make_parts(5)
    assert {VALUES.part(20), TRANSITIONS.part(20)} <= set(made)
    assert caught() == {}
    assert Measurement.objects.get(boot=boot).values == [3.0, 4.0]
    assert Transition.objects.get(subject="boot", subject_id=boot.pk).after == "planned"


def test_rows_that_are_too_many_are_not_moved_though_their_part_is_wanted_for_new_boots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "_MOST_MOVED", 2)
    for number in range(3):
        step(2 * BOOTS + number)
    made = make_parts(5)
    assert TRANSITIONS.part(2) not in made
    assert {TRANSITIONS.part(1), TRANSITIONS.part(3), VALUES.part(2)} <= set(made)
    assert caught() == {TRANSITIONS.name: 3}
    monkeypatch.setattr(partitions, "_MOST_MOVED", 3)
    assert make_parts(5) == [TRANSITIONS.part(2)]
    assert caught() == {}


def test_ids_from_nowhere_make_a_few_parts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_MOST_OF_CAUGHT", 2)
    for number in range(10, 15):
        step(number * BOOTS)
    make_parts(5)
    assert parts(TRANSITIONS) == [0, 1, 2, 3, 10, 11]


def test_history_is_in_order_of_its_numbers_across_parts() -> None:
    make_parts(BOOTS)
    numbers = [
        step(BOOTS).pk,
        Transition.objects.create(trace="t", subject="series", subject_id=1, after="ready").pk,
        step(4).pk,
    ]
    assert list(Transition.objects.filter(trace="t").values_list("pk", flat=True)) == numbers
    assert Transition.objects.order_by("-pk").first() == Transition.objects.get(subject_id=4)


def test_old_part_without_rows_is_dropped_unless_it_is_needed() -> None:
    make_parts(2 * BOOTS)
    build_measurement(boot_of(2 * BOOTS + 1), case=build_case(), values=[1.0, 2.0])
    assert drop_empty(lambda _first, _end: True) == []
    assert drop_empty(lambda _first, _end: False) == [VALUES.part(0)]
    # Of the others nothing was ever filled: what is empty there was made ahead.
    assert parts(VALUES) == [2, 3, 4, 5]
    # One that was dropped and whose boot tells its result after all.
    late = boot_of(BOOTS - 9)
    build_measurement(late, case=build_case("late"), values=[5.0, 6.0])
    assert caught() == {VALUES.name: 1}
    make_parts(2 * BOOTS)
    assert caught() == {}
    assert Measurement.objects.get(boot=late).values == [5.0, 6.0]


@pytest.fixture
def storing() -> Iterator[None]:
    """Somebody else is in the middle of storing results, and of reading all that there is."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE results_packedvalues_outside IN ROW EXCLUSIVE MODE")
            begun.set()
            over.wait(30)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(30)
    yield
    over.set()
    thread.join()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("storing")
def test_nobody_who_stores_is_waited_for_longer_than_a_moment() -> None:
    try:
        began = clock.now()
        made = make_parts(5, [VALUES, CONDITIONS])
        assert made == [CONDITIONS.part(number) for number in (1, 2, 3)]
        assert parts(VALUES) == [0]
        # The limit was for these steps alone.
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)
        assert began <= clock.now()
    finally:
        with connection.cursor() as cursor:
            for number in (1, 2, 3):
                cursor.execute(f"DROP TABLE IF EXISTS {CONDITIONS.part(number)}")
