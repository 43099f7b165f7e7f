"""Whether each watched tree and list answers, for the home page and the status page."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.text import Truncator

from server.core import clock
from server.core.addresses import without_credentials
from server.sources.models import MailingList, Tree
from server.sources.polling import next_try

# A watcher that missed this many polls is late, even if its last one went well: silence must not look like health.
_MISSED_POLLS = 4
_SLACK = timedelta(seconds=60)
# Errors of git are a line or two; a hostile remote may say more.
_LONGEST_ERROR = 600


@dataclass(frozen=True, slots=True)
class Watcher:
    """A polled tree or list; one without `url` is never polled."""

    id: int
    kind: str
    name: str
    url: str
    enabled: bool
    polled_at: datetime | None
    fetched_at: datetime | None
    failing_since: datetime | None
    failures: int
    error: str
    next_try: datetime | None
    late: bool

    @property
    def alarming(self) -> bool:
        return self.enabled and bool(self.failing_since or self.late)


def watchers() -> tuple[Watcher, ...]:
    now = clock.now()
    trees = (watcher("tree", tree, now) for tree in Tree.objects.all())
    lists = (watcher("list", row, now) for row in MailingList.objects.all())
    return (*trees, *lists)


def watcher(kind: str, row: Tree | MailingList, now: datetime) -> Watcher:
    allowed = timedelta(seconds=row.poll_seconds * _MISSED_POLLS) + _SLACK
    silent = row.polled_at is None or now - next_try(row) > allowed
    return Watcher(
        id=row.pk,
        kind=kind,
        name=row.name,
        url=without_credentials(row.url),
        enabled=row.enabled,
        polled_at=row.polled_at,
        fetched_at=row.fetched_at,
        failing_since=row.failing_since,
        failures=row.failures,
        error=Truncator(without_credentials(row.last_error)).chars(_LONGEST_ERROR),
        next_try=next_try(row) if row.enabled and row.url else None,
        late=row.enabled and bool(row.url) and silent,
    )
