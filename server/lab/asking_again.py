"""A person asks for a build again that failed for something else than its kernel: it is made again, and booted."""

from django.db import transaction
from django.db.models import Q

from server.builds.models import Build, BuildState
from server.builds.services import is_present
from server.core.errors import DomainError
from server.core.states import new_trace
from server.core.tasks import enqueue
from server.lab.models import Boot, BootState, Session, SessionState, Trial, TrialState
from server.sources.models import SeriesState

_LONGEST_REASON = 500


def ask_again(build: Build, reason: str, *, actor: str) -> int:
    """Want a failed build anew, and the sessions that were not booted for it; returns how many those are.

    Its attempts are counted anew. Raises DomainError: `no-reason`; `conflict` for one that did not fail, or whose
    configuration was edited since.
    """
    reason = " ".join(reason.split())[:_LONGEST_REASON]
    if not reason:
        raise DomainError("no-reason", "say why it is to be built again: it becomes part of its history")
    with transaction.atomic():
        row = Build.objects.select_for_update(of=("self",)).select_related("config", "toolchain").get(pk=build.pk)
        if row.state != BuildState.FAILED:
            raise DomainError("conflict", f"build {row.pk} is {row.state}: only one that failed is asked for again")
        if not is_present(row):
            said = "its configuration or toolchain was edited since: who wants this kernel wants another build"
            raise DomainError("conflict", f"build {row.pk}: {said}")
        fields = {"trace": new_trace(), "given_up": False, "first_error": "", "log_tail": ""}
        row.advance(BuildState.WANTED, f"asked for again: {reason}", actor=actor, **fields)
        again = sum(_boot_again(session, row, actor) for session in _left_out(row))
        enqueue("lab.dispatch")
    return again


def _left_out(build: Build) -> list[Session]:
    """Sessions of series, and of trials that go on, that failed before they began. All else is answered for good."""
    rows = Session.objects.select_for_update(of=("self",)).filter(
        Q(base_build=build) | Q(patched_build=build), state=SessionState.FAILED, concluded_at=None, trial__isnull=False
    )
    of_series = Q(purpose=Session.Purpose.SERIES, series__state=SeriesState.APPLIED, trial__state=TrialState.FAILED)
    rows = rows.filter(of_series | Q(trial__state=TrialState.MEASURING))
    begun = Boot.objects.exclude(started_by="").values("session")
    return list(rows.exclude(pk__in=begun).select_related("trial").order_by("pk"))


def _boot_again(session: Session, build: Build, actor: str) -> bool:
    why = f"build {build.pk} was asked for again"
    trial = Trial.objects.select_for_update(of=("self",), no_key=True).get(sessions=session)
    # Another machine's session may have opened it already.
    if trial.state == TrialState.FAILED:
        trial.advance(TrialState.MEASURING, why, actor=actor, answered_at=None)
    if trial.state != TrialState.MEASURING or not session.advance(SessionState.PLANNED, why, actor=actor):
        return False
    for boot in session.boots.filter(state=BootState.FAILED):
        boot.advance(BootState.PLANNED, why)
    return True
