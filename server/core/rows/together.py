"""Several small questions asked of the database in one statement, for pages that want a little of many tables.

What a page of the lab tells comes from two dozen look-ups of a few rows each: one after the other, most of the time
goes by on the way to the database and back.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import DateTimeField, DurationField, JSONField, QuerySet
from django.utils.dateparse import parse_duration

Row = tuple[Any, ...]
# What JSON has no words for, and what its field reads by itself.
_READ: Final[Sequence[tuple[type, Callable[[Any], Any]]]] = (
    (DateTimeField, datetime.fromisoformat),
    (DurationField, parse_duration),
    (JSONField, json.dumps),
)


@dataclass(frozen=True)
class _Part:
    """A question in SQL, without any where it cannot have an answer; its `compiler` reads the rows."""

    compiler: Any
    sql: str
    params: Row

    @property
    def as_json(self) -> str:
        """One value: a list of lists, for columns of several tables may have one name."""
        names = [f"c{number}" for number in range(len(self.compiler.select))]
        row = f"json_build_array({', '.join(f'part.{name}' for name in names)})"
        return f"(SELECT json_agg({row}) FROM ({self.sql}) AS part({', '.join(names)}))"  # noqa: S608 (of Django's words)

    def rows(self, told: Sequence[list[Any]] | None) -> list[Row]:
        fields = [expression.output_field for expression, _, _ in self.compiler.select]
        read = [next((how for kind, how in _READ if isinstance(field, kind)), None) for field in fields]
        rows = [
            [how(value) if how and value is not None else value for how, value in zip(read, row, strict=True)]
            for row in told or ()
        ]
        return list(self.compiler.results_iter([rows], tuple_expected=True))


def read_together(*asked: "QuerySet[Any, Any]") -> list[list[Row]]:
    """The rows of each, which are lists of values (`values_list`), as it would give them alone.

    For few rows: as JSON they take longer to read.
    """
    parts = [_part(one) for one in asked]
    told = iter(_told([part for part in parts if part.sql]))
    return [part.rows(next(told)) if part.sql else [] for part in parts]


def objects_together(*asked: "QuerySet[Any, Any]") -> list[list[Any]]:
    """The same as objects of each one's model, without what is joined to them."""
    names = [[field.attname for field in one.model._meta.concrete_fields] for one in asked]
    told = read_together(*(one.values_list(*own) for one, own in zip(asked, names, strict=True)))
    return [
        [one.model.from_db(one.db, own, row) for row in rows] for one, own, rows in zip(asked, names, told, strict=True)
    ]


def _part(asked: "QuerySet[Any, Any]") -> _Part:
    compiler = asked.query.get_compiler(asked.db)
    try:
        sql, params = compiler.as_sql()
    except EmptyResultSet:
        return _Part(compiler, "", ())
    return _Part(compiler, sql, tuple(params))


def _told(parts: Sequence[_Part]) -> Iterable[Sequence[list[Any]] | None]:
    if not parts:
        return ()
    statement = f"SELECT {', '.join(part.as_json for part in parts)}"
    with connection.cursor() as cursor:
        cursor.execute(statement, [value for part in parts for value in part.params])
        found: tuple[Sequence[list[Any]] | None, ...] = cursor.fetchone()
    return found
