"""How many rows of which tables PostgreSQL looks at: what a query costs, whatever its plan and the host."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_COUNTED = """
SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
"""


@contextmanager
def rows_read() -> Iterator[Counter[str]]:
    """Rows by table that scans of any kind look at inside the block. In one transaction: its end takes the counts."""
    found: Counter[str] = Counter()
    with connection.cursor() as cursor:
        # What parallel workers read is counted elsewhere.
        cursor.execute("SET LOCAL max_parallel_workers_per_gather = 0")
    before = _counted()
    yield found
    found.update(_counted() - before)


def _counted() -> Counter[str]:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTED)
        return Counter(dict(cursor.fetchall()))
