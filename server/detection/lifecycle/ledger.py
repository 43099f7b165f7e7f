"""What people decide about a finding: who accepted which regressions, why and until when; what has come back; what
is to mend it.
"""

import re
from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, Value, When

from server.core import clock
from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, Transition
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.detection.findings.checks import CheckOutcome, Name, checks_named, held
from server.detection.lifecycle.fix import Candidate, culprits_of, measure, regressed_comparisons
from server.detection.models import Acceptance, Finding, FindingState
from server.lab.models import Trial
from server.results.models import Metric
from server.sources.mirror import mirror, record_revisions
from server.sources.models import Revision


def standing(finding: Finding) -> list[Acceptance]:
    """Lines that hold now: not withdrawn, not expired."""
    return [
        line for line in holding_now(finding.acceptances.select_related("metric")) if getattr(line, "active", False)
    ]


def holding_now(lines: QuerySet[Acceptance]) -> QuerySet[Acceptance]:
    """Lines that know whether they hold: `active`."""
    later = Q(expires_at=None) | Q(expires_at__gt=clock.now())
    return lines.annotate(active=Case(When(later, withdrawn_at=None, then=Value(True)), default=Value(False)))


def is_covered(finding: Finding) -> bool:
    """Whether every regression of the finding is accepted, by one line or by several together."""
    lines = standing(finding)
    wanted = {(row.session.machine.uarch.name, row.metric_id) for row in regressed_comparisons(finding)}
    return bool(lines) and all(_is_accepted(uarch, metric, lines) for uarch, metric in wanted)


def state_before(finding: Finding, state: FindingState) -> FindingState:
    """Where a finding in `state` came from; what was being bisected then is confirmed."""
    lines = Transition.objects.filter(subject="finding", subject_id=finding.pk, after=state).exclude(before=state)
    before = lines.order_by("-id").values_list("before", flat=True).first()
    allowed = (FindingState.CANDIDATE, FindingState.REPORTED)
    return FindingState(before) if before in allowed else FindingState.CONFIRMED


def write_line(finding: Finding, reason: Reason, actor: str) -> None:
    """A line of history that leaves the finding where it is."""
    Transition.objects.create(
        trace=finding.trace,
        subject="finding",
        subject_id=finding.pk,
        before=finding.state,
        after=finding.state,
        **reason.columns(),
        actor=actor,
    )


def _is_accepted(uarch: str, metric: int, lines: Iterable[Acceptance]) -> bool:
    return any(
        (line.metric_id is None or line.metric_id == metric) and (not line.uarchs or uarch in line.uarchs)
        for line in lines
    )


def accept(
    finding: Finding,
    *,
    actor: str,
    reason: str,
    metric: Metric | None = None,
    uarchs: Collection[str] = (),
    expires_at: datetime | None = None,
) -> Acceptance:
    """Write a line into the ledger. Once the lines cover every regression of the finding, it is ACCEPTED.

    No `metric` and no `uarchs` mean all of them. The same line of the same person that holds already is the answer to
    the same request. DomainError `no-reason`, `nobody`, `expired`, `nothing-to-accept`,
    `uarch-unknown` or `conflict`.
    """
    person = actor.strip()[:LONGEST_ACTOR]
    _refuse_empty(finding, person, reason)
    if expires_at is not None and expires_at <= clock.now():
        raise DomainError("expired", f"{expires_at:%Y-%m-%d %H:%M} UTC is over")
    with transaction.atomic():
        row = held(finding.pk)
        _refuse_acceptance(row)
        _refuse_nothing(row, metric, uarchs)
        said = {"metric": metric, "uarchs": sorted(set(uarchs)), "reason": reason.strip(), "person": person}
        alike = row.acceptances.filter(**said, expires_at=expires_at, withdrawn_at=None).first()
        if alike is not None:
            return alike
        line = Acceptance.objects.create(finding=row, expires_at=expires_at, **said)
        _follow_ledger(row, Because.ACCEPTED(_line(line)), person)
    finding.refresh_from_db(fields=["state", "reason", "reason_code", "state_since"])
    return line


def withdraw_acceptance(line: Acceptance, *, actor: str, reason: str) -> bool:
    """Take one line back; the finding is again where it was, unless other lines cover it. False if it is withdrawn.

    DomainError `no-reason` or `nobody`.
    """
    person = actor.strip()[:LONGEST_ACTOR]
    with transaction.atomic():
        row = held(line.finding_id)
        _refuse_empty(row, person, reason)
        if Acceptance.objects.filter(pk=line.pk, withdrawn_at=None).update(withdrawn_at=clock.now()) != 1:
            return False
        told = Because.ACCEPTANCE_OVER(f"acceptance {line.pk} is withdrawn: {reason.strip()}")
        _follow_ledger(row, told, person)
    return True


def expire_acceptances() -> int:
    """For the sweep: accepted findings that the ledger does not cover any more go back; returns how many."""
    expired = Finding.objects.filter(
        state=Finding.State.ACCEPTED,
        acceptances__withdrawn_at=None,
        acceptances__expires_at__lte=clock.now(),
        acceptances__expires_at__gte=F("state_since"),
    )
    moved = 0
    for finding_id in expired.order_by("pk").values_list("pk", flat=True).distinct():
        with transaction.atomic():
            row = held(finding_id)
            if row.state == Finding.State.ACCEPTED and not is_covered(row):
                moved += _go_back(row, Because.ACCEPTANCE_OVER("its acceptance has expired"), "")
    return moved


def _follow_ledger(row: Finding, reason: Reason, actor: str) -> None:
    """Move the finding to where the ledger says; a line that moves nothing is history all the same."""
    covered = is_covered(row)
    if covered and row.state != Finding.State.ACCEPTED:
        row.advance(Finding.State.ACCEPTED, reason, actor=actor)
    elif not covered and row.state == Finding.State.ACCEPTED:
        _go_back(row, reason, actor)
    else:
        write_line(row, reason, actor)


def _go_back(row: Finding, reason: Reason, actor: str) -> bool:
    """Reports and bisections look at it again; what was a candidate is checked again by the sweep."""
    enqueue("reports.sweep")
    # A search that was canceled by the acceptance is wanted again.
    enqueue("detection.tend", "bisections")
    return row.advance(state_before(row, FindingState.ACCEPTED), reason, actor=actor)


def _line(line: Acceptance) -> str:
    where = f" on {', '.join(line.uarchs)}" if line.uarchs else ""
    what = f"{line.metric.name}{where}" if line.metric else f"all{where}"
    until = f" until {line.expires_at:%Y-%m-%d %H:%M} UTC" if line.expires_at else ""
    return f"accepted ({what}{until}): {line.reason}"


def _refuse_empty(finding: Finding, person: str, reason: str) -> None:
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who decides this is not said")
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk}: why is not said")


def _refuse_acceptance(row: Finding) -> None:
    known = row.state == Finding.State.ACCEPTED
    if not known and Finding.State.ACCEPTED not in Finding.NEXT.get(row.state, frozenset()):
        raise DomainError("conflict", f"finding {row.pk} is {Finding.State(row.state).label}: nothing to accept")


def _refuse_nothing(row: Finding, metric: Metric | None, uarchs: Collection[str]) -> None:
    regressed = regressed_comparisons(row)
    known = {one.session.machine.uarch.name for one in regressed}
    if strange := sorted(set(uarchs) - known):
        told = ", ".join(sorted(known)) or "none"
        raise DomainError(
            "uarch-unknown", f"finding {row.pk} did not regress on {', '.join(strange)}; it did on {told}"
        )
    wanted = [one for one in regressed if metric is None or one.metric_id == metric.pk]
    if not wanted:
        of = f" in {metric.name}" if metric else ""
        raise DomainError("nothing-to-accept", f"finding {row.pk} did not regress{of}")


def reopen(finding: Finding, *, actor: str, reason: str) -> None:
    """FIXED -> where it was before. DomainError `no-reason`, `nobody`, or `conflict` for one that is not mended."""
    if not actor.strip():
        raise DomainError("nobody", f"finding {finding.pk}: who decides this is not said")
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk}: why is not said")
    with transaction.atomic():
        row = held(finding.pk)
        if row.state != FindingState.FIXED:
            raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}, not mended")
        told = Because.REOPENED(reason.strip())
        row.advance(state_before(row, FindingState.FIXED), told, actor=actor.strip(), fix=None)
        enqueue("reports.sweep")
        enqueue("detection.tend", "bisections")
    finding.refresh_from_db(fields=["state", "reason", "reason_code", "state_since", "fix"])


# A commit's id, or as much of it as people write; names of branches move while they are measured.
_ID = re.compile(r"[0-9a-f]{7,40}")
_SHORT = 12


def ask_for_fix(finding: Finding, sha: str, *, actor: str) -> Trial:
    """Have the revision measured against what was there before the change; it counts as one of the finding's tries.

    DomainError `nobody`, `commit-unknown`, `not-after-culprit`, `not-in-branch`, `under-way`, `nothing-to-mend`, or
    `conflict` for a finding that cannot be mended; GitError, temporary, where the mirror cannot be read.
    """
    person = actor.strip()
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who asks is not said")
    with transaction.atomic():
        row = held(finding.pk)
        _refuse_fix(row)
        revision = _revision(row, sha.strip().lower())
        asked = Trial.objects.filter(asked_by__finding=row, purpose=Trial.Purpose.FIX, patched=revision)
        pending = [told for told in checks_named(row, Name.FIX) if told.get("outcome") == CheckOutcome.PENDING]
        if asked.exclude(state__in=Trial.FINAL).exists() or revision.sha in {told["revision"] for told in pending}:
            raise DomainError("under-way", f"finding {row.pk}: {revision.sha[:_SHORT]} is being measured already")
        trial = measure(row, Candidate(revision, f"{person} asks"), number=asked.count() + 1)
        if trial is None:
            raise DomainError("nothing-to-mend", f"finding {row.pk}: nothing of it regressed")
        write_line(row, Because.BY_PERSON(f"whether {revision} mends it is measured"), person)
    return trial


def _refuse_fix(row: Finding) -> None:
    if row.branch is None:
        raise DomainError("conflict", f"finding {row.pk} is of a series: its next version is compared with it")
    if FindingState.FIXED not in Finding.NEXT.get(row.state, frozenset()):
        raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}: nothing to mend")


def _revision(row: Finding, told: str) -> Revision:
    """The commit that is named, which lies after what made the change, in the finding's branch."""
    assert row.branch is not None
    assert row.after is not None
    sha = mirror().resolve(told) if _ID.fullmatch(told) else None
    if sha is None:
        raise DomainError("commit-unknown", f"the mirror has no commit {told!r}; give its id, 7 digits at least")
    for start in sorted(culprits_of(row) or {row.after.sha}):
        if sha == start or not mirror().is_ancestor(start, sha):
            text = f"{sha[:_SHORT]} does not come after {start[:_SHORT]}, which has the change of finding {row.pk}"
            raise DomainError("not-after-culprit", text)
    head = row.branch.head
    if head is None or not mirror().is_ancestor(sha, head.sha):
        raise DomainError("not-in-branch", f"{sha[:_SHORT]} is not in {row.branch}, of which finding {row.pk} is")
    return record_revisions(tree=row.branch.tree, shas=[sha])[0]
