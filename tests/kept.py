"""Rows that all tests of a module look at and that none of them needs for itself: made once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection, transaction
from django.test import override_settings
from pytest_django import DjangoDbBlocker


@contextmanager
def kept_rows(blocker: DjangoDbBlocker, state_dir: Path) -> Iterator[None]:
    """For a fixture of a module, which makes its rows in the block, calls `settle` and yields: they go at its end.

    What a test changes of them is gone after it, as always.
    """
    with blocker.unblock(), override_settings(STATE_DIR=state_dir), transaction.atomic():
        yield
        transaction.set_rollback(True)


def settle() -> None:
    """Check the rows' keys now: else the end of each test would do it again."""
    connection.check_constraints()
