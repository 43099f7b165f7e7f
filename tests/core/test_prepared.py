"""Queries whose SQL is made once give what the same queries give that are made each time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import connection
from django.db.models import CharField, Exists, OuterRef, TextField

from server.core.rows.prepared import Given, IsOneOf, Prepared
from server.lab.models import Machine
from tests.builders import build_machine

pytestmark = pytest.mark.django_db


def by_name() -> Prepared[Machine]:
    rows = Machine.objects.select_related("uarch").filter(name=Given("name", CharField()))
    return Prepared(rows.order_by)


def test_each_asking_has_its_own_values() -> None:
    build_machine("one", "zen3")
    build_machine("two", "zen5")
    asked = by_name()
    assert [(row.name, row.uarch.name) for row in asked.rows(name="one")] == [("one", "zen3")]
    assert [(row.name, row.uarch.name) for row in asked.rows(name="two")] == [("two", "zen5")]
    assert asked.first(name="three") is None


def test_rows_are_read_anew_and_what_is_related_comes_with_them() -> None:
    build_machine("one", "zen3")
    asked = by_name()
    first = asked.first(name="one")
    Machine.objects.update(health_reason="too hot")
    second = asked.first(name="one")
    assert first is not None
    assert second is not None
    assert (first.health_reason, second.health_reason) == ("", "too hot")
    with connection.execute_wrapper(lambda *_: pytest.fail("asked again")):
        assert second.uarch.name == "zen3"


def test_value_that_is_not_told_is_an_error() -> None:
    with pytest.raises(KeyError, match="name"):
        by_name().rows()


def test_value_is_never_read_as_sql() -> None:
    build_machine("one")
    assert by_name().rows(name="x' OR 'a' = 'a") == []
    assert by_name().rows(name="%s") == []


def test_one_of_some_values_and_values_inside_of_subqueries() -> None:
    for name in ("one", "two", "three"):
        build_machine(name)
    twin = Machine.objects.filter(pk=OuterRef("pk"), name=Given("liked", CharField()))
    asked = Prepared(
        lambda: (
            Machine.objects.filter(IsOneOf("name", Given("names", ArrayField(TextField()))))
            .annotate(is_liked=Exists(twin))
            .order_by("name")
        )
    )
    found: list[Any] = asked.rows(names=["one", "three", "four"], liked="three")
    assert [(row.name, row.is_liked) for row in found] == [("one", False), ("three", True)]
    assert asked.rows(names=[], liked="three") == []


@pytest.mark.django_db(transaction=True)
def test_threads_ask_by_their_own_connections() -> None:
    names = [f"machine-{number}" for number in range(8)]
    for name in names:
        build_machine(name)
    asked = by_name()

    def ask(name: str) -> list[str]:
        try:
            return [row.name for _ in range(20) for row in asked.rows(name=name)]
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, names)) == [[name] * 20 for name in names]
