"""The ledger of what people accepted: which regressions of a finding its lines cover now."""

from collections.abc import Iterable

from django.db.models import Q

from server.core import clock
from server.core.models import Transition
from server.detection.lifecycle.fixing import regressed_comparisons
from server.detection.models import Acceptance, Finding, FindingState


def standing(finding: Finding) -> list[Acceptance]:
    """Lines that hold now: not withdrawn, not expired."""
    later = Q(expires_at=None) | Q(expires_at__gt=clock.now())
    return list(finding.acceptances.filter(later, withdrawn_at=None).select_related("metric"))


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


def write_line(finding: Finding, reason: str, actor: str) -> None:
    """A line of history that leaves the finding where it is."""
    Transition.objects.create(
        trace=finding.trace,
        subject="finding",
        subject_id=finding.pk,
        before=finding.state,
        after=finding.state,
        reason=reason,
        actor=actor,
    )


def _is_accepted(uarch: str, metric: int, lines: Iterable[Acceptance]) -> bool:
    return any(
        (line.metric_id is None or line.metric_id == metric) and (not line.uarchs or uarch in line.uarchs)
        for line in lines
    )
