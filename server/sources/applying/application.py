"""From a ready series to commits in the mirror, or to a reason why not."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from django.db import transaction
from django.db.models import F, Max

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.programs.git import GitError
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.sources.applying.git_am import Applied, NotApplied, apply_mails, keep_commits, scratch_folder
from server.sources.applying.prerequisites import Needs, WaitsError, find_needs, ids_in_history, patch_ids
from server.sources.bases.candidates import Base, candidate_bases, clues_of
from server.sources.measure_rules import benchmarks_for
from server.sources.mirror import base_ref, record_revisions, series_ref
from server.sources.models import Branch, Patch, Series
from server.sources.screened_mails import PatchRefusedError, ScreenedMail, screen_patches

log = structlog.get_logger(__name__)

# For reading the mails, and for all bases together; with what else is done, shorter than the time limit of the task,
# or a slow series would be tried for ever.
_READING_SECONDS = 90.0
_SECONDS = 120.0


def apply_ready(series: Series, scratch: Path) -> None:
    """Apply `series` and record it, or advance it to REFUSED; raises what screening and prerequisites raise."""
    _Attempt(series, scratch).run()


@dataclass
class _Attempt:
    """`failures` are sentences about bases that did not fit; `rejected` are those of them that the mails name."""

    series: Series
    scratch: Path
    end: float = 0.0
    failures: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    waiting: WaitsError | None = None

    def run(self) -> None:
        patches = list(self.series.patches.select_related("message", "series").order_by("index"))
        end = time.monotonic() + _READING_SECONDS
        mails = screen_patches(patches, folder=self.scratch / "screened", seconds=_READING_SECONDS)
        needs = find_needs(self.series, folder=self.scratch / "ids")
        left = end - time.monotonic()
        needed = screen_patches(needs.patches, folder=self.scratch / "needed", seconds=left, foreign=True)
        self.end = time.monotonic() + _SECONDS
        for base in candidate_bases(self.series, mails, clues_of(self.series, mails)):
            outcome = self._try(base, mails, needs, needed)
            if isinstance(outcome, Applied):
                self._record(base, outcome, patches, mails, needs)
                return
            if outcome is None:
                break
        if self.waiting:
            raise self.waiting
        why = "does not apply to " + "\nnor to ".join(self.failures)
        if self.end <= time.monotonic():
            # What was not tried may be the right one, and the host may have been busy.
            raise GitError("git-timeout", why)
        self.series.advance(Series.State.REFUSED, Because.DOES_NOT_APPLY(why), failures=self.series.failures)

    def _try(
        self, base: Base, mails: Sequence[ScreenedMail], needs: Needs, needed: Sequence[ScreenedMail]
    ) -> Applied | NotApplied | None:
        """None when no other base needs to be tried."""
        try:
            below = _still_needed(base, needs, needed)
        except WaitsError as error:
            self.waiting = error
            # What the mails name is where it belongs: another base that happens to fit would be a wrong one.
            return None if base.certain else NotApplied(error.message)
        left = self.end - time.monotonic()
        if left <= 0:
            self.failures.append(f"{base.sha[:12]} ({base.how}): not tried, the others took {_SECONDS:g} s")
            return None
        merging = all(series.approved_at is None for series in [self.series, *(p.series for p in needs.patches)])
        outcome = apply_mails(
            mails=mails, base=base.sha, scratch=self.scratch, seconds=left, merging=merging, prerequisites=below
        )
        if isinstance(outcome, NotApplied):
            log.info("base_rejected", series=self.series.pk, base=base.sha, how=base.how, reason=outcome.reason)
            self.failures.append(f"{base.sha[:12]} ({base.how}): {outcome.reason}")
            self.rejected += [f"{base.sha[:12]} ({base.how})"] if base.certain else []
        return outcome

    def _record(
        self, base: Base, outcome: Applied, patches: Sequence[Patch], mails: Sequence[ScreenedMail], needs: Needs
    ) -> None:
        # Prerequisites and patches of other series are as foreign as this one: builders know it by the name of the ref.
        foreign = bool(outcome.prerequisites) or record_revisions(tree=base.tree, shas=[base.sha])[0].foreign
        below = series_ref(self.series.pk, 0) if foreign else base_ref(self.series.pk)
        refs = {below: outcome.base}
        for patch, sha in zip(patches, outcome.commits, strict=True):
            refs[series_ref(self.series.pk, patch.index)] = sha
        keep_commits(applied=outcome, refs=refs)
        texts = [mail.diff_text for mail in mails]
        for patch, patch_id in zip(patches, patch_ids(texts, folder=self.scratch / "ids"), strict=True):
            patch.patch_id = patch_id
        paths = sorted({path for mail in mails for path in mail.paths})
        _record_rows(self.series, replace(base, how=base.how + self._remarks(outcome, needs)), outcome, patches, paths)

    def _remarks(self, outcome: Applied, needs: Needs) -> str:
        """What else people must know about the base: what it was preferred to, and what else it holds."""
        words = "".join(f"; it does not apply to {where}" for where in self.rejected)
        count = len(outcome.prerequisites)
        words += f"; {count} prerequisite patch{'es' if count > 1 else ''} below it" if count else ""
        return words + "".join(f"; {sentence}" for sentence in needs.remarks)


def _still_needed(base: Base, needs: Needs, needed: Sequence[ScreenedMail]) -> list[ScreenedMail]:
    """The prerequisites that `base` does not hold; WaitsError for a missing one."""
    if not needs.patches and not needs.missing:
        return []
    # What is missing may touch any path.
    paths = [] if needs.missing else sorted({path for mail in needed for path in mail.paths})
    there = ids_in_history(base.sha, paths)
    if absent := next((patch_id for patch_id in needs.missing if patch_id not in there), ""):
        raise WaitsError(f"patch-id:{absent}")
    return [mail for patch, mail in zip(needs.patches, needed, strict=True) if patch.patch_id not in there]


@transaction.atomic
def _record_rows(series: Series, base: Base, outcome: Applied, patches: Sequence[Patch], paths: Sequence[str]) -> None:
    below = record_revisions(tree=base.tree, shas=[base.sha])
    below += record_revisions(tree=base.tree, shas=list(outcome.prerequisites), foreign=True)
    made = record_revisions(tree=base.tree, shas=list(outcome.commits), foreign=True)
    for patch, revision in zip(patches, made, strict=True):
        patch.revision = revision
    Patch.objects.bulk_update(patches, ["revision", "patch_id"])
    advanced = series.advance(
        Series.State.APPLIED,
        Because.APPLIED(f"applied to {outcome.base[:12]}: {base.how}"),
        base=below[-1],
        head=made[-1],
        base_how=base.how,
        base_certain=base.certain,
        benchmarks=benchmarks_for(paths),
        failures=0,
    )
    if advanced:
        enqueue("builds.sweep")


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
            series.advance(Series.State.REFUSED, Because.GIT_FAILED(why))
            return
        Series.objects.filter(pk=series.pk).update(tried_at=clock.now(), failures=series.failures + 1)
        try:
            with scratch_folder(f"series-{series.pk}") as scratch:
                apply_ready(series, scratch)
        except PatchRefusedError as error:
            series.advance(Series.State.REFUSED, Because.REFUSED(error.message), failures=series.failures)
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
    if series.reason_code == Because.WAITS_FOR_PREREQUISITE:
        return ago >= _LONG_PAUSE or (ago >= _SHORT_PAUSE and (news or _latest_news()) > series.tried_at)
    if series.reason_code != Because.TRIED_AGAIN:
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
        series.advance(Series.State.REFUSED, Because.DOES_NOT_APPLY(why), failures=series.failures)
    else:
        series.note(Because.WAITS_FOR_PREREQUISITE(error.message), failures=series.failures)
        log.info("series_waits", series=series.pk, reason=error.message)


def _note_failure(series: Series, error: DomainError) -> None:
    """The page says why a series waits; one on which git fails again and again is refused."""
    failures = series.failures + isinstance(error, GitError)
    if failures >= _MOST_FAILURES:
        why = Because.GIT_FAILED(f"git failed {failures} times: {error.message}")
        series.advance(Series.State.REFUSED, why, failures=failures)
    else:
        series.note(Because.TRIED_AGAIN(f"tried again soon: {error.message}"), failures=failures)
