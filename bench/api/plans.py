"""What PostgreSQL does for a question: its statements, and which large tables they read from end to end."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection

# Shorter ones are read as fast from end to end as by an index.
LARGE_ROWS = 10_000
_NO_STATEMENTS = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK", "SET")

Statement = tuple[str, Any]


@contextmanager
def statements() -> Iterator[list[Statement]]:
    """What is asked of the database inside the block, with its values."""
    found: list[Statement] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 (Django calls it so)
        if not sql.startswith(_NO_STATEMENTS):
            found.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        yield found


def large_tables() -> dict[str, int]:
    """Rows of each table that has many, as PostgreSQL knows them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, reltuples::bigint FROM pg_class WHERE relkind = 'r' AND reltuples >= %s"
            " AND relnamespace = 'public'::regnamespace",
            [LARGE_ROWS],
        )
        return dict(cursor.fetchall())


def plan_of(statement: Statement) -> Mapping[str, Any]:
    """The root of its plan; without running it."""
    sql, params = statement
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        told = cursor.fetchone()[0]
    document = json.loads(told) if isinstance(told, str) else told
    root: Mapping[str, Any] = document[0]["Plan"]
    return root


def read_whole(plan: Mapping[str, Any]) -> set[str]:
    """Tables that some step of the plan reads from end to end."""
    own = {str(plan["Relation Name"])} if plan["Node Type"] == "Seq Scan" else set()
    return own.union(*(read_whole(step) for step in plan.get("Plans", ())))


def scanned(asked: list[Statement], large: Mapping[str, int]) -> set[str]:
    """Of the large tables those that one of the statements reads so."""
    selects = [one for one in asked if one[0].lstrip().startswith(("SELECT", "WITH", "("))]
    return {table for one in selects for table in read_whole(plan_of(one))} & set(large)
