"""Advisory locks of PostgreSQL: at most one holder of a name in the whole service, released at the holder's death."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import structlog
from django.db import OperationalError, connection

from server.core.database import connect_apart
from server.core.errors import DomainError

log = structlog.get_logger(__name__)

# The code of the DomainError where somebody waited for a lock for as long as he might.
BUSY = "busy"
_TRY = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
_WAIT = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
# The limit is for the lock alone: rows of other statements are waited for as before.
_WAIT_SOME = """
WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS told)
SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(hashtextextended(%s, 0)),
    set_config('lock_timeout', before.told, true) FROM before
"""
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


def wait_for_lock(name: str, *, seconds: float | None = None) -> None:
    """Wait for lock `name` and hold it to the end of the running transaction: for short steps that must not mix.

    With `seconds` no longer than these: DomainError then, and the transaction can only be rolled back.
    """
    with connection.cursor() as cursor:
        if seconds is None:
            cursor.execute(_WAIT, [name])
            return
        try:
            cursor.execute(_WAIT_SOME, [f"{seconds * 1000:.0f}ms", name])
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise
            said = f"others have been at work there ({name}) for {seconds:g} seconds: try again later"
            raise DomainError(BUSY, said, permanent=False) from error
