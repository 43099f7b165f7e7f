"""From a ready series to commits in the mirror, or to a reason why not."""

import time
from pathlib import Path

import structlog
from django.db import transaction

from server.core.errors import DomainError
from server.core.git import GitError
from server.core.locks import advisory_lock
from server.core.tasks import enqueue
from server.sources.applying import Applied, NotApplied, apply_mails, keep_commits, scratch_folder
from server.sources.bases import Base, candidate_bases
from server.sources.mirror import base_ref, record_revisions, series_ref
from server.sources.models import Patch, Series
from server.sources.screening import PatchRefusedError, ScreenedMail, screen_patch

log = structlog.get_logger(__name__)

# For all bases together; shorter than the time limit of the task, or a slow series would be tried for ever.
_SECONDS = 150.0
# A full disk passes, a mail that git chokes on does not.
_MOST_FAILURES = 3


def apply_series(*, series: Series) -> None:
    """Apply a ready series to its base; it ends applied or refused, or stays ready after a temporary DomainError.

    Killed at any point and run again it makes the same commits under the same refs, because committer, dates and the
    order of bases do not depend on the run.
    """
    with advisory_lock(f"sources.series.{series.pk}") as free:
        series.refresh_from_db()
        if not free or series.state != Series.State.READY:
            return
        structlog.contextvars.bind_contextvars(trace=series.trace)
        try:
            with scratch_folder(f"series-{series.pk}") as scratch:
                _apply(series, scratch)
        except PatchRefusedError as error:
            series.advance(Series.State.REFUSED, error.message)
        except DomainError as error:
            _note_failure(series, error)
            raise
        finally:
            structlog.contextvars.unbind_contextvars("trace")


def _note_failure(series: Series, error: DomainError) -> None:
    """The page says why a series waits; one on which git fails again and again is refused."""
    failures = series.failures + isinstance(error, GitError)
    if failures >= _MOST_FAILURES:
        series.advance(Series.State.REFUSED, f"git failed {failures} times: {error.message}", failures=failures)
    else:
        Series.objects.filter(pk=series.pk, state=Series.State.READY).update(
            reason=f"tried again soon: {error.message}", failures=failures
        )


def _apply(series: Series, scratch: Path) -> None:
    end = time.monotonic() + _SECONDS
    patches = list(series.patches.select_related("message", "series").order_by("index"))
    mails = [screen_patch(patch, scratch=scratch) for patch in patches]
    failures = []
    for base in candidate_bases(series):
        left = end - time.monotonic()
        if left <= 0:
            failures.append(f"{base.why} ({base.sha[:12]}): not tried, the others took {_SECONDS:g} s")
            break
        outcome = _try_base(series, base, mails, patches, scratch=scratch, seconds=left)
        if outcome is None:
            return
        log.info("base_rejected", series=series.pk, base=base.sha, why=base.why, reason=outcome.reason)
        failures.append(f"{base.why} ({base.sha[:12]}): {outcome.reason}")
    series.advance(Series.State.REFUSED, "does not apply to the " + "\nnor to the ".join(failures))


def _try_base(
    series: Series, base: Base, mails: list[ScreenedMail], patches: list[Patch], *, scratch: Path, seconds: float
) -> NotApplied | None:
    """None when the series has been applied to `base` and recorded."""
    repository, outcome = apply_mails(mails=mails, base=base.sha, scratch=scratch, seconds=seconds)
    if isinstance(outcome, NotApplied):
        return outcome
    refs = [base_ref(series.pk), *(series_ref(series.pk, p.index) for p in patches)]
    keep_commits(source=repository, commits=(base.sha, *outcome.commits), refs=refs)
    _record(series, base, outcome, patches)
    return None


@transaction.atomic
def _record(series: Series, base: Base, outcome: Applied, patches: list[Patch]) -> None:
    first, *revisions = record_revisions(tree=base.branch.tree, shas=[base.sha, *outcome.commits])
    for patch, revision in zip(patches, revisions, strict=True):
        patch.revision = revision
        patch.save(update_fields=["revision"])
    if series.advance(Series.State.APPLIED, f"applied to the {base.why}", base=first, head=revisions[-1]):
        enqueue("builds.sweep")
