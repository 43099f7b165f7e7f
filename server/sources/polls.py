"""When a watched source is asked again, what it may bring, and what is noted of each try: for trees and lists alike."""

import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from django.db import Error

from server.core import clock
from server.core.addresses import without_credentials
from server.core.programs.git import GitError
from server.core.programs.sandbox import Limits
from server.sources.models import MailingList, Tree

log = structlog.get_logger(__name__)

# Below Celery's soft limit, so that a slow fetch ends as an error on the source and not as a killed worker.
FETCH_SECONDS = 200.0
# Below that nothing is fetched. One fetch leaves so much of it for the database and everybody else.
_ROOM = 2 * 2**30
_KEPT_FREE = _ROOM // 2
_LONGEST_PAUSE = timedelta(hours=1)
# Doubled so often, a pause of a second is longer than the longest.
_MOST_DOUBLINGS = 12
# A server that comes back must not be met by everyone who waited for it at the same moment.
_SPREAD = 0.25
# Hosts of one service may differ so much. A last try further in the future was noted while a clock was wrong.
_SKEW = timedelta(minutes=1)
_LONGEST_REASON = 500
# What was not asked for so many polls is late.
_MISSED_POLLS = 4
_SLACK = timedelta(seconds=60)

Source = Tree | MailingList


def is_due(source: Source, now: datetime) -> bool:
    if source.polled_at is None or source.polled_at > now + _SKEW:
        return True
    return now >= next_try(source)


def next_try(source: Source) -> datetime:
    return (source.polled_at or clock.now()) + pause_of(source)


def is_late(source: Source, now: datetime) -> bool:
    """Whether nobody has asked it for several polls, even if the last one went well: silence is no health."""
    if not (source.enabled and source.url):
        return False
    allowed = timedelta(seconds=source.poll_seconds * _MISSED_POLLS) + _SLACK
    return source.polled_at is None or now - next_try(source) > allowed


def pause_of(source: Source) -> timedelta:
    """That of its polls; one that fails waits twice as long each time, an hour at most."""
    pause = timedelta(seconds=source.poll_seconds)
    if source.failures:
        longer = min(pause * 2 ** min(source.failures, _MOST_DOUBLINGS), _LONGEST_PAUSE)
        pause = max(pause, longer * (1 - _SPREAD * _chance(source)))
    return pause


def _chance(source: Source) -> float:
    """Between 0 and 1, another one for each source and failure, but the same each time it is asked for."""
    return zlib.crc32(f"{type(source).__name__} {source.pk} {source.failures}".encode()) / 2**32


def within_room(limits: Limits, git_dir: Path) -> Limits:
    """`limits` of a fetch, and no file larger than half of what the disk has room for: others fetch, too.

    GitError where that is hardly any.
    """
    free = shutil.disk_usage(git_dir).free
    if free < _ROOM:
        raise GitError("disk-full", f"nothing is fetched: only {free >> 20} MB of disk are left for {git_dir.name}")
    return replace(limits, file_bytes=min(limits.file_bytes, (free - _KEPT_FREE) // 2))


def note_success(source: Source, complaint: str = "") -> None:
    """The source was read. A `complaint`, such as a branch that is not there, is shown, but slows nothing down."""
    now = clock.now()
    source.polled_at = source.fetched_at = now
    source.failures = 0
    _note(source, complaint)


def note_failure(source: Source, error: str) -> None:
    """The source could not be read: the alarm is shown and the pause grows."""
    source.polled_at = clock.now()
    source.failures += 1
    _note(source, error)
    log.warning(
        "source_failed",
        kind=type(source).__name__,
        name=source.name,
        error=source.last_error,
        failures=source.failures,
        failing_since=str(source.failing_since),
    )


@contextmanager
def unforeseen_noted(source: Source) -> Iterator[None]:
    """An error that nobody foresaw is raised, but noted first: else no alarm tells of it, and no pause grows."""
    try:
        yield
    except Exception as error:
        try:
            note_failure(source, f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
        except Error:
            log.warning("failure_not_noted", kind=type(source).__name__, name=source.name)
        raise


def _note(source: Source, error: str) -> None:
    # git quotes addresses in its errors, with the password if there is one.
    source.last_error = without_credentials(error).replace("\0", "")
    source.failing_since = (source.failing_since or clock.now()) if error else None
    fields = ("polled_at", "fetched_at", "failures", "last_error", "failing_since")
    # An update, not a save: a person may have deleted the source in the meantime.
    type(source).objects.filter(pk=source.pk).update(**{field: getattr(source, field) for field in fields})
