"""Storing the comparisons of a family: thousands of rows at once, by COPY."""

from collections.abc import Sequence

from django.db import connection

from server.core import clock
from server.detection.models import Comparison

_TABLE = Comparison._meta.db_table
# All that a comparison says; the database counts its id.
_FIELDS = tuple(field for field in Comparison._meta.concrete_fields if not field.primary_key)


def store_comparisons(rows: Sequence[Comparison]) -> None:
    """Write unsaved comparisons; their ids are the database's, and not set here. Runs in the caller's transaction.

    Building and parsing an INSERT of so many parameters takes longer than all of judging them.
    """
    now = clock.now()
    columns = ", ".join(f'"{field.column}"' for field in _FIELDS)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{_TABLE}" ({columns}) FROM STDIN') as copy:
        for row in rows:
            row.computed_at = now
            copy.write_row([getattr(row, field.attname) for field in _FIELDS])
