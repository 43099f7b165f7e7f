"""How processes reach PostgreSQL: neither a statement nor a server that has fallen silent holds one for ever; and its
advisory locks, of which each has one holder in the whole service at most, released at the holder's death.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar

import psycopg
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection, transaction
from psycopg.abc import PQGen

from server.core.errors import DomainError

log = structlog.get_logger(__name__)

_T = TypeVar("_T")
_INTERVAL = 0.1
_LOOKS = 20
# With a pause that grows by a second: 28 s together. A pooler refuses for 15 s after a server has refused it.
_TRIES = 8
# A server that is well ends a statement by itself at its limit; one that says nothing for so long after it is not.
GRACE_SECONDS = 3.0


class Connection(psycopg.Connection[Any]):
    """Gives a silent server up.

    The kernel of a stopped one still acknowledges packets: neither TCP nor the server's own limit would end the wait.
    """

    # Seconds for each answer of the server; None: for ever.
    patience: ClassVar[float | None] = None

    def wait(self, gen: PQGen[_T], interval: float = _INTERVAL, timeout: float | None = None) -> _T:
        if timeout is not None or self.patience is None:
            return super().wait(gen, interval, timeout)
        started = time.monotonic()
        try:
            return super().wait(gen, interval, self.patience)
        except psycopg.OperationalError:
            if time.monotonic() - started >= self.patience:
                # Nobody knows what it is doing: it must not serve anybody else.
                self.pgconn.finish()
            raise


class ImpatientConnection(Connection):
    """For the question whether the server answers at all."""

    patience = 3.0


def patient(seconds: float) -> type[Connection]:
    """The connections of a process whose statements may take `seconds`; 0: as long as they like."""
    most = seconds + GRACE_SECONDS if seconds else None
    return type("PatientConnection", (Connection,), {"patience": most})


def options(seconds: float, *, process: str, pooled: bool) -> dict[str, Any]:
    """Django's OPTIONS for connections of such a process; `pooled`: through a pooler that hands servers on."""
    found: dict[str, Any] = {
        "connect_timeout": 5,
        # Whose it is, in pg_stat_activity and in the server's log.
        "application_name": f"tidemark {process}",
        # A host that has gone without a word; not used on unix sockets.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # One pool for each process: a thread waits for a connection instead of opening one more than PostgreSQL allows.
        "pool": {"min_size": 1, "max_size": 16, "timeout": 10, "connection_class": patient(seconds)},
    }
    if not pooled:
        # PostgreSQL takes a page out of order for four times as dear as the next one, as on disks that turn: it would
        # read sessions from end to end to find some hundred of them.
        limit = f" -c statement_timeout={int(seconds * 1000)}" if seconds else ""
        found["options"] = f"-c random_page_cost=1.1{limit}"
    return found


def connect_apart(**given: Any) -> psycopg.Connection[Any]:
    """A connection beside the one that Django's models use, for what must not mix with it. The caller closes it."""
    # Not when the settings are read, which this module takes part in.
    from django.db import connection  # noqa: PLC0415

    kind: type[Connection] = connection.settings_dict["OPTIONS"]["pool"]["connection_class"]
    return kind.connect(**{**connection.get_connection_params(), **given})


def refuse_unknown_pooler() -> None:
    """Raises ImproperlyConfigured where a pooler changes servers between transactions and the settings do not say so.

    Cursors that outlive their transaction would be gone, and the limit of statements would be somebody else's.
    """
    from django.conf import settings  # noqa: PLC0415

    if not settings.DATABASE_POOLED and _is_pooled():
        raise ImproperlyConfigured(
            "the database is reached through a pooler in transaction mode: set TIDEMARK_DATABASE_POOLED=1 "
            "(docs/operations/pooler.md)"
        )


def _is_pooled() -> bool:
    for number in range(_TRIES):
        # A pooler on a busy host answers its first client late.
        time.sleep(number)
        try:
            return _changes_servers()
        except psycopg.OperationalError as error:
            log.warning("database_not_asked", error=str(error), tries_left=_TRIES - number - 1)
    # Whoever needs the database will say that it does not answer.
    return False


def _changes_servers() -> bool:
    # A pooler refuses whoever brings limits of his own before it says what it is.
    given: dict[str, Any] = {"connect_timeout": 10, "options": ""}
    with connect_apart(**given) as one:
        one.autocommit = True
        first = _server(one)
        if first == one.info.backend_pid:
            return False
        # Somebody stands in between. If he hands servers on, a transaction of another session takes this one's, or this
        # one gets another. He may free a server a moment after he answered, so he is asked more than once.
        with connect_apart(**given) as other:
            for _ in range(_LOOKS):
                if _server(one) != first:
                    return True
                with other.transaction():
                    if _server(other) == first or _server(one) != first:
                        return True
                time.sleep(_INTERVAL)
        return False


def _server(session: psycopg.Connection[Any]) -> int:
    """The process of PostgreSQL that answers."""
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    if row is None:
        raise psycopg.OperationalError("the server did not say who it is")
    return int(row[0])


@contextmanager
def snapshot() -> Iterator[None]:
    """All that the block reads is one state of the database, and it writes nothing. In a transaction: that one's."""
    within = connection.in_atomic_block
    with transaction.atomic():
        if not within:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


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


_ASKED: ContextVar[list[bool] | None] = ContextVar("locks asked for", default=None)


@contextmanager
def locks_noted() -> Iterator[list[bool]]:
    """Yields what tells, after the block, of each lock that it tried to take whether it was free."""
    found: list[bool] = []
    token = _ASKED.set(found)
    try:
        yield found
    finally:
        _ASKED.reset(token)


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
        free = bool(row and row[0])
        asked = _ASKED.get()
        if asked is not None:
            asked.append(free)
        yield free
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
