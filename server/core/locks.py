"""Advisory locks of PostgreSQL: at most one holder of a name in the whole service, released at the holder's death."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import structlog
from django.db import connection

from server.core.database import connect_apart

log = structlog.get_logger(__name__)

_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
_WAIT = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
# A site may set limits for forgotten transactions; this one ends with its block. Not every PostgreSQL has both.
_UNLIMITED = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""


@contextmanager
def advisory_lock(name: str) -> Iterator[bool]:
    """Try to take lock `name` for the block; yields whether it was free. Never waits. Not for a name that one holds.

    The lock belongs to a transaction of its own, on a connection that does nothing else: the block commits step by
    step, and a pooler, which may give every transaction another server, leaves an open one where it is.
    """
    with connect_apart() as holder:
        # No snapshot is kept between statements, so that the open transaction holds up no vacuum.
        holder.execute(_UNLIMITED)
        row = holder.execute(_TRY, [name]).fetchone()
        yield bool(row and row[0])
        try:
            holder.rollback()
        except psycopg.OperationalError:
            # The server ended it in the meantime: somebody else may have held the lock beside the end of this block.
            log.exception("lock_lost", lock=name)


def wait_for_lock(name: str) -> None:
    """Wait for lock `name` and hold it to the end of the running transaction: for short steps that must not mix."""
    with connection.cursor() as cursor:
        cursor.execute(_WAIT, [name])
