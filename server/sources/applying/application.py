"""From a ready series to commits in the mirror, or to a reason why not."""

from datetime import timedelta

import structlog

from server.core import clock
from server.core.errors import DomainError
from server.core.git import GitError
from server.core.locks import advisory_lock
from server.sources.applying.git_am import scratch_folder
from server.sources.applying.prerequisites import WaitsError
from server.sources.applying.screening import PatchRefusedError
from server.sources.applying.steps import apply_ready
from server.sources.models import Branch, Series

log = structlog.get_logger(__name__)

# A full disk passes, a mail that git chokes on does not.
_MOST_FAILURES = 3
_FAILURE_PAUSE = timedelta(minutes=2)
# How long a series waits for what it needs, and how often it is looked at: at most, and when nothing seems to be new.
_LONGEST_WAIT = timedelta(days=14)
_SHORT_PAUSE = timedelta(minutes=1)
_LONG_PAUSE = timedelta(hours=1)
_WAITS = "waits for prerequisite"


def apply_series(*, series: Series) -> None:
    """Apply a ready series to its base; it ends applied or refused, or stays ready after a temporary DomainError.

    Killed at any point and run again it makes the same commits under the same refs, because committer, dates and the
    order of bases do not depend on the run. Does nothing while it waits for something and nothing new has come.
    """
    with advisory_lock(f"sources.series.{series.pk}") as free:
        series.refresh_from_db()
        if not free or series.state != Series.State.READY or not is_due(series):
            return
        structlog.contextvars.bind_contextvars(trace=series.trace)
        Series.objects.filter(pk=series.pk).update(tried_at=clock.now())
        try:
            with scratch_folder(f"series-{series.pk}") as scratch:
                apply_ready(series, scratch)
        except PatchRefusedError as error:
            series.advance(Series.State.REFUSED, error.message)
        except WaitsError as error:
            _note_waiting(series, error)
        except DomainError as error:
            _note_failure(series, error)
            raise
        finally:
            structlog.contextvars.unbind_contextvars("trace")


def is_due(series: Series) -> bool:
    """Whether trying (again) can help: after a pause when git failed, and for a prerequisite when one may have come."""
    if series.tried_at is None:
        return True
    ago = clock.now() - series.tried_at
    if series.reason.startswith(_WAITS):
        return ago >= _LONG_PAUSE or (ago >= _SHORT_PAUSE and _is_news_since(series))
    return ago >= _FAILURE_PAUSE * series.failures


def _is_news_since(series: Series) -> bool:
    """Another series may be what was waited for, and the head of a branch may hold it."""
    others = Series.objects.exclude(pk=series.pk).filter(state_since__gte=series.tried_at)
    return others.exists() or Branch.objects.filter(head_at__gte=series.tried_at).exists()


def _note_waiting(series: Series, error: WaitsError) -> None:
    if clock.now() - series.state_since > _LONGEST_WAIT:
        series.advance(Series.State.REFUSED, f"{error.message}; it did not come in {_LONGEST_WAIT.days} days")
    else:
        _note(series, error.message)
        log.info("series_waits", series=series.pk, reason=error.message)


def _note_failure(series: Series, error: DomainError) -> None:
    """The page says why a series waits; one on which git fails again and again is refused."""
    failures = series.failures + isinstance(error, GitError)
    if failures >= _MOST_FAILURES:
        series.advance(Series.State.REFUSED, f"git failed {failures} times: {error.message}", failures=failures)
    else:
        _note(series, f"tried again soon: {error.message}", failures=failures)


def _note(series: Series, reason: str, **fields: int) -> None:
    Series.objects.filter(pk=series.pk, state=Series.State.READY).update(reason=reason, **fields)
