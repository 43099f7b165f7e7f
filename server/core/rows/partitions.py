"""Large tables that are cut by the ids of boots, so that what has left them gives its room back at once.

Each part holds a range of ids, and whoever asks for a boot reads one part (docs/decisions/0038). Parts are made before
they are needed; what fits in none is caught by a part that should be empty.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg
import structlog
from django.db import OperationalError, connection, transaction

log = structlog.get_logger(__name__)

# So many boots 200 machines make in a quarter of a year. Each query plans for every part that it cannot rule out.
BOOTS = 1 << 20
_AHEAD = 3
# Whoever stores results waits for no longer than this; the next sweep tries again.
_PATIENCE_MS = 250
# Rows that a sweep moves to the part that they wanted; more of them are for a person to move, at a quiet hour.
_MOST_MOVED = 100_000
# Parts that a sweep makes for what was caught, of each table: ids from nowhere want one each.
_MOST_OF_CAUGHT = 16


@dataclass(frozen=True)
class CutTable:
    """A table with a range of ids in each part; `column` holds them."""

    name: str
    column: str

    @property
    def outside(self) -> str:
        """The part that catches what fits in no other."""
        return f"{self.name}_outside"

    def part(self, number: int) -> str:
        return f"{self.name}_{number}"


TRANSITIONS = CutTable("core_transition_boot", "subject_id")
CONDITIONS = CutTable("lab_conditions", "boot_id")
VALUES = CutTable("results_packedvalues", "boot_id")
CUT = (TRANSITIONS, CONDITIONS, VALUES)


def cutting(table: CutTable, key: str) -> str:
    """SQL that cuts a new and empty table; constraints, indexes and references are made after it. `key` has a column
    by which PostgreSQL can tell the part, as every unique key of a table in parts.
    """
    return f"{_emptied(table.name, f'RANGE ({table.column})', key)}{first_parts(table)}"


def cutting_transitions() -> str:
    """Steps of boots are the most by far, and are read by their boots; those of all else stay together."""
    boots = TRANSITIONS.name
    return (
        f"{_emptied('core_transition', 'LIST (subject)', 'id, subject, subject_id')}"
        "CREATE TABLE core_transition_others PARTITION OF core_transition DEFAULT;\n"
        f"CREATE TABLE {boots} PARTITION OF core_transition FOR VALUES IN ('boot')"
        f" PARTITION BY RANGE ({TRANSITIONS.column});\n{first_parts(TRANSITIONS)}"
    )


def _emptied(name: str, by: str, key: str) -> str:
    return (
        f"ALTER TABLE {name} RENAME TO {name}_plain;\n"
        f"ALTER SEQUENCE IF EXISTS {name}_id_seq RENAME TO {name}_plain_id_seq;\n"
        f"CREATE TABLE {name} (LIKE {name}_plain INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING CONSTRAINTS)"
        f" PARTITION BY {by};\n"
        f"DROP TABLE {name}_plain;\nALTER TABLE {name} ADD PRIMARY KEY ({key});\n"
    )


def first_parts(table: CutTable) -> str:
    return (
        f"CREATE TABLE {table.part(0)} PARTITION OF {table.name} FOR VALUES FROM (MINVALUE) TO ({BOOTS});\n"
        f"CREATE TABLE {table.outside} PARTITION OF {table.name} DEFAULT;\n"
    )


def make_parts(newest: int, tables: Sequence[CutTable] = CUT) -> list[str]:
    """Parts for boots up to `newest` and some beyond it, and for what was caught outside; names of those made.

    Each in a transaction of its own, which gives way to whoever stores results.
    """
    made = []
    for table in tables:
        there = parts(table)
        wanted = {*range(newest // BOOTS, newest // BOOTS + _AHEAD + 1), *_of_caught(table)}
        for number in sorted(wanted - set(there)):
            if _in_turn(table.part(number), partial(_make, table, number)):
                made.append(table.part(number))
                log.info("part_made", part=table.part(number))
    return made


def parts(table: CutTable) -> list[int]:
    """Numbers of the parts that are there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass",
            [table.name],
        )
        names = [name.removeprefix(f"{table.name}_") for (name,) in cursor.fetchall()]
    return sorted(int(name) for name in names if name.isdecimal())


def caught(tables: Sequence[CutTable] = CUT) -> dict[str, int]:
    """By table, how many rows fitted in no part; a thousand stand for more. Empty where all is well."""
    asked = " UNION ALL ".join(
        f"SELECT '{table.name}', (SELECT count(*) FROM (SELECT 1 FROM {table.outside} LIMIT 1000) AS seen)"  # noqa: S608
        for table in tables
    )
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return {name: count for name, count in cursor.fetchall() if count}


def drop_empty(needed: Callable[[int, int], bool], tables: Sequence[CutTable] = CUT) -> list[str]:
    """Drop old parts that have no row left, unless `needed` (the first id, and the one after the last); their names.

    The part that is filled now and the one before it stay.
    """
    dropped = []
    for table in tables:
        numbers = parts(table)
        # What was made ahead is empty, too: after the last that holds something come those.
        filled = [number for number in numbers if _has_rows(table.part(number))]
        for number in [number for number in numbers if number < max(filled, default=0) - 1 and number not in filled]:
            if needed(number * BOOTS, (number + 1) * BOOTS):
                continue
            if _in_turn(table.part(number), partial(_drop, table, number)):
                dropped.append(table.part(number))
                log.info("part_dropped", part=table.part(number))
    return dropped


def _of_caught(table: CutTable) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {table.column} / {BOOTS}, count(*)"  # noqa: S608 (names of our own tables)
            f" FROM (SELECT {table.column} FROM {table.outside} LIMIT {_MOST_MOVED + 1}) AS seen GROUP BY 1"
        )
        found = cursor.fetchall()
    total = sum(count for _, count in found)
    if not total:
        return []
    log.error("rows_outside_parts", table=table.name, rows=total)
    return sorted(number for number, _ in found)[:_MOST_OF_CAUGHT] if total <= _MOST_MOVED else []


def _make(table: CutTable, number: int) -> bool:
    first, end = number * BOOTS, (number + 1) * BOOTS
    name, range_ = table.part(number), f"{table.column} >= {first} AND {table.column} < {end}"
    with connection.cursor() as cursor:
        # The lock under which nobody brings more of them comes first.
        cursor.execute(f"LOCK TABLE {table.outside} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table.outside} WHERE {range_} LIMIT {_MOST_MOVED + 1}) AS seen"  # noqa: S608
        )
        # A part that is wanted for new boots, too: those who store results wait while rows are moved.
        if cursor.fetchone()[0] > _MOST_MOVED:
            log.error("part_not_made", part=name, why="too many rows outside are its own: move them by hand")
            return False
        cursor.execute(f"CREATE TABLE {name} (LIKE {table.name} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
        cursor.execute(
            f"WITH moved AS (DELETE FROM {table.outside} WHERE {range_} RETURNING *)"  # noqa: S608
            f" INSERT INTO {name} SELECT * FROM moved"
        )
        # So that it is attached without being read.
        cursor.execute(f"ALTER TABLE {name} ADD CONSTRAINT {name}_range CHECK ({range_})")
        cursor.execute(f"ALTER TABLE {table.name} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")
        cursor.execute(f"ALTER TABLE {name} DROP CONSTRAINT {name}_range")
    return True


def _drop(table: CutTable, number: int) -> bool:
    name = table.part(number)
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        if _has_rows(name):
            return False
        cursor.execute(f"DROP TABLE {name}")
    return True


def _has_rows(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {name})")  # noqa: S608 (names of our own tables)
        row = cursor.fetchone()
    return bool(row and row[0])


def _in_turn(part: str, step: Callable[[], bool]) -> bool:
    """Whether the step was taken; False where others would have had to wait for it, too."""
    try:
        with transaction.atomic(), _impatient():
            return step()
    except OperationalError as error:
        if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise
        log.warning("part_waits", part=part)
        return False


@contextmanager
def _impatient() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_PATIENCE_MS}ms"])
    yield
