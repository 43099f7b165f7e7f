"""From a ready series to commits in the mirror, or to a reason why not."""

from datetime import UTC, datetime, timedelta

import structlog
from django.db.models import F, Max

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
# What is not the series' fault, such as a missing sandbox, is looked at again after a tenth of the time it lasts.
_PART_OF_WAIT = 10
_LONGEST_PAUSE = timedelta(minutes=10)
# Wake-ups of one sweep: thousands of series that wait must not keep the queue from those who fetch trees.
_MOST_AT_ONCE = 100
_NEVER = datetime.min.replace(tzinfo=UTC)
_WAITS = "waits for prerequisite"
_AGAIN = "tried again soon: "


def apply_series(*, series: Series) -> None:
    """Apply a ready series to its base; it ends applied or refused, or stays ready after a temporary DomainError.

    Killed at any point and run again it makes the same commits under the same refs, because committer, dates and the
    order of bases do not depend on the run. Does nothing while it waits for something and nothing new has come.
    A try counts as failed until its end is known: one that takes the worker with it (time, memory) must not come
    again for ever.
    """
    with advisory_lock(f"sources.series.{series.pk}") as free:
        series.refresh_from_db()
        if not free or series.state != Series.State.READY or not is_due(series):
            return
        structlog.contextvars.bind_contextvars(trace=series.trace)
        if series.failures >= _MOST_FAILURES:
            why = f"tried {series.failures} times, and each time the worker was ended before git had done its work"
            series.advance(Series.State.REFUSED, why)
            return
        Series.objects.filter(pk=series.pk).update(tried_at=clock.now(), failures=series.failures + 1)
        try:
            with scratch_folder(f"series-{series.pk}") as scratch:
                apply_ready(series, scratch)
        except PatchRefusedError as error:
            series.advance(Series.State.REFUSED, error.message, failures=series.failures)
        except WaitsError as error:
            _note_waiting(series, error)
        except DomainError as error:
            _note_failure(series, error)
            raise
        finally:
            structlog.contextvars.unbind_contextvars("trace")


def series_to_apply() -> list[int]:
    """Ids of the series that a sweep should wake up: never tried ones, then those that were tried longest ago."""
    news = _latest_news()
    ready = Series.objects.filter(state=Series.State.READY).order_by(F("tried_at").asc(nulls_first=True), "pk")
    return [series.pk for series in ready if is_due(series, news)][:_MOST_AT_ONCE]


def is_due(series: Series, news: datetime | None = None) -> bool:
    """Whether trying (again) can help: after a pause when it failed, and for a prerequisite when one may have come.

    `news` is when that could have been last, where the caller knows it.
    """
    if series.tried_at is None:
        return True
    ago = clock.now() - series.tried_at
    if series.reason.startswith(_WAITS):
        return ago >= _LONG_PAUSE or (ago >= _SHORT_PAUSE and (news or _latest_news()) > series.tried_at)
    if not series.reason.startswith(_AGAIN):
        # A worker that was ended once may have been ended by anything.
        return ago >= _FAILURE_PAUSE * (series.failures - 1)
    pause = min((clock.now() - series.state_since) / _PART_OF_WAIT, _LONGEST_PAUSE)
    return ago >= max(pause, _FAILURE_PAUSE * series.failures)


def _latest_news() -> datetime:
    """Any series may be what another one waits for, and the head of a branch may hold it."""
    series = Series.objects.order_by("-state_since", "-id").values_list("state_since", flat=True).first()
    branches = Branch.objects.aggregate(at=Max("head_at"))["at"]
    return max(series or _NEVER, branches or _NEVER)


def _note_waiting(series: Series, error: WaitsError) -> None:
    if clock.now() - series.state_since > _LONGEST_WAIT:
        why = f"{error.message}; it did not come in {_LONGEST_WAIT.days} days"
        series.advance(Series.State.REFUSED, why, failures=series.failures)
    else:
        series.note(error.message, failures=series.failures)
        log.info("series_waits", series=series.pk, reason=error.message)


def _note_failure(series: Series, error: DomainError) -> None:
    """The page says why a series waits; one on which git fails again and again is refused."""
    failures = series.failures + isinstance(error, GitError)
    if failures >= _MOST_FAILURES:
        series.advance(Series.State.REFUSED, f"git failed {failures} times: {error.message}", failures=failures)
    else:
        series.note(f"{_AGAIN}{error.message}", failures=failures)
