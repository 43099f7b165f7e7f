"""What a request or a sweep reads does not grow with history.

PostgreSQL counts the rows that each scan looks at, of tables as of indexes. With sequential scans discouraged, and
joins that read both sides whole, it takes an index wherever there is one that fits, for tables as small as these, too;
what can only be answered by reading a whole table still does, and is seen by its rows. No plan is compared and nothing
is timed.
"""

from collections.abc import Iterator
from unittest import mock

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client, override_settings
from pytest_django import DjangoDbBlocker

from tests.history_costs import Cost, costs
from tests.kept import settle
from tests.long_history import add_history, add_open_work
from tests.rows_read import rows_read

pytestmark = pytest.mark.django_db

_WORKS = 1000
_NAMES = list(costs(Client()))
# Of a table: what is shown on a page, and what joins of it read, stays far below in a history of this length.
_MOST_SHARE = 0.5
_SMALL = 900
# A course draws so many points of a timeline, and here there are no more; of each state the list of findings counts a
# hundred at most, which of so few is half of them.
_DRAWN = {"detection_timelinepoint": 5000, "detection_finding": 600}


@pytest.fixture(scope="module")
def history(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, Cost]]:
    """One history for all tests of this module, gone afterwards."""
    with django_db_blocker.unblock(), override_settings(DISPATCHER="jenkins"), transaction.atomic():
        add_history(0, _WORKS)
        add_open_work()
        settle()
        client = Client()
        client.force_login(get_user_model().objects.create_superuser("staff", "staff@example.org", "secret"))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
            for whole in ("seqscan", "hashjoin", "mergejoin"):
                cursor.execute(f"SET LOCAL enable_{whole} = off")
        # As on a site whose tables are far longer than what the admin counts.
        with mock.patch.multiple("server.core.admin", create=True, _MOST_COUNTED=100, _LOOKED_AT=100):
            yield costs(client)
        transaction.set_rollback(True)


@pytest.mark.parametrize("name", _NAMES)
def test_no_table_that_grows_is_read_whole(history: dict[str, Cost], name: str) -> None:
    sizes = _sizes()
    with transaction.atomic():
        # The first time does what is to be done, and fills caches.
        history[name]()
        with rows_read() as read:
            history[name]()
        transaction.set_rollback(True)
    growing = {table: count for table, count in read.items() if sizes.get(table, 0) > _SMALL}
    allowed = {table: max(_MOST_SHARE * sizes[table], _DRAWN.get(table, 0)) for table in growing}
    assert {table: count for table, count in growing.items() if count > allowed[table]} == {}


def _sizes() -> dict[str, float]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reltuples FROM pg_class WHERE relkind = 'r'")
        return dict(cursor.fetchall())


def test_a_page_of_sessions_reads_no_other_boots_by_the_plan_that_is_taken(history: dict[str, Cost]) -> None:
    """With all ways open: one question for all sessions at once is dearer than one for each shown, and was taken."""
    sizes = _sizes()
    with transaction.atomic():
        with connection.cursor() as cursor:
            for whole in ("seqscan", "hashjoin", "mergejoin"):
                cursor.execute(f"SET LOCAL enable_{whole} = on")
        with rows_read() as read:
            history["/api/v1/sessions/"]()
        transaction.set_rollback(True)
    assert read["lab_boot"] <= _MOST_SHARE * sizes["lab_boot"]
