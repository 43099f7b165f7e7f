"""Advisory locks of PostgreSQL: at most one holder of a name in the whole service, released at commit or death."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def advisory_lock(name: str) -> Iterator[bool]:
    """Open a transaction and try to take lock `name`; yields whether it was free. Never waits."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name]
        )
        row = cursor.fetchone()
        yield bool(row and row[0])
