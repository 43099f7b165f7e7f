"""Queries that are asked all day, whose SQL is made once: to make that of what agents ask takes Django longer than it
takes the database to answer.
"""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import connections
from django.db.models import BooleanField, Expression, Field, Func, Model, QuerySet

_M = TypeVar("_M", bound=Model)


class Given(Expression):
    """In a `Prepared` the value of that name, which is told whenever it is asked."""

    def __init__(self, name: str, output_field: "Field[Any, Any]") -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:  # noqa: ARG002 (as Django calls it)
        return "%s", (self,)


class IsOneOf(Func):
    """Whether a column is one of the values of an array. `__in` has as many places as there are values."""

    template, arg_joiner = "%(expressions)s)", " = ANY("
    output_field = BooleanField()


class Prepared(Generic[_M]):
    """Rows as of the queryset that `make` returns, with each `Given` in it told by its name.

    Every value that is not alike each time has to be such a `Given`, settings and the time too.
    """

    def __init__(self, make: Callable[[], "QuerySet[_M]"]) -> None:
        self._make = make

    def rows(self, **given: Any) -> list[_M]:
        asked = self._queryset.all()
        template, statement, places = self._compiled
        compiler = copy.copy(template)
        # That of this thread.
        compiler.connection = connections[asked.db]
        values = tuple(given[place.name] if isinstance(place, Given) else place for place in places)
        # Nothing of it is made anew (docs/decisions/0037).
        compiler.as_sql = lambda *_args, **_options: (statement, values)
        asked.query.get_compiler = lambda *_args, **_options: compiler  # type: ignore[method-assign]
        return list(asked)

    def first(self, **given: Any) -> _M | None:
        """Of a query for one row at most."""
        return next(iter(self.rows(**given)), None)

    @cached_property
    def _queryset(self) -> "QuerySet[_M]":
        return self._make()

    @cached_property
    def _compiled(self) -> tuple[Any, str, tuple[Any, ...]]:
        """Its compiler, which knows what the columns are; the SQL, and what stands in its places."""
        compiler = self._queryset.query.get_compiler(self._queryset.db)
        statement, places = compiler.as_sql()
        return compiler, statement, tuple(places)
