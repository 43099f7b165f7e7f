"""Advisory locks of PostgreSQL: at most one holder of a name in the whole service, released at the holder's death."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def advisory_lock(name: str) -> Iterator[bool]:
    """Try to take lock `name` for the block; yields whether it was free. Never waits.

    The lock belongs to the connection, not to a transaction, so that the block can commit step by step.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name])
        row = cursor.fetchone()
    taken = bool(row and row[0])
    try:
        yield taken
    finally:
        if taken and connection.connection is not None and not connection.connection.closed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [name])


def wait_for_lock(name: str) -> None:
    """Wait for lock `name` and hold it to the end of the running transaction: for short steps that must not mix."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
