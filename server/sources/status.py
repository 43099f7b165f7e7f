"""Which watched sources fail, for alarms."""

from dataclasses import dataclass
from datetime import datetime

from server.core.addresses import without_credentials
from server.sources.models import MailingList, Tree
from server.sources.polling import Source, next_try


@dataclass(frozen=True)
class FailingSource:
    """A tree or list with trouble. `failures` is 0 where it is read, but something of it is missing."""

    kind: str
    name: str
    url: str
    failing_since: datetime
    failures: int
    last_error: str
    next_try: datetime


def failing_sources() -> tuple[FailingSource, ...]:
    """Enabled trees, then lists, those that have been failing longest first. No address shows a password."""
    rows: list[Source] = [
        *Tree.objects.filter(enabled=True, failing_since__isnull=False).order_by("failing_since", "name"),
        *MailingList.objects.filter(enabled=True, failing_since__isnull=False).order_by("failing_since", "name"),
    ]
    return tuple(_failing(row, row.failing_since) for row in rows if row.failing_since)


def _failing(row: Source, since: datetime) -> FailingSource:
    return FailingSource(
        kind="tree" if isinstance(row, Tree) else "list",
        name=row.name,
        url=without_credentials(row.url),
        failing_since=since,
        failures=row.failures,
        last_error=without_credentials(row.last_error),
        next_try=next_try(row),
    )
