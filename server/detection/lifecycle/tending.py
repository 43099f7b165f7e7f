"""The sweep over the life of findings: what a lost message left, what has expired, what a newer version replaced."""

from collections.abc import Callable

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from server.core.clock import lately
from server.core.errors import DomainError
from server.detection.lifecycle.accepting import expire_acceptances
from server.detection.lifecycle.checking import begin_checks, conclude_checks
from server.detection.lifecycle.fixing import look_for_mending, mendable
from server.detection.lifecycle.layout import layout_key
from server.detection.lifecycle.locking import held
from server.detection.lifecycle.stopping import stop_forgotten
from server.detection.lifecycle.superseding import awaiting_replacement, supersede_of_series, supersede_older
from server.detection.models import Finding, FindingVerdict
from server.lab.models import Trial

log = structlog.get_logger(__name__)

# One sweep does no more of a kind; the next one comes soon.
_AT_ONCE = 50


def tend() -> None:
    """Every part can fail alone, and each finding alone."""
    for part in (_supersede_of_series, _supersede_by_newer, expire_acceptances, _stop_forgotten):
        _part_alone(part)
    for finding_id in _unchecked()[:_AT_ONCE]:
        _alone(finding_id, _go_on_checking)
    for finding in mendable()[:_AT_ONCE]:
        _alone(finding.pk, _look_for_mending)


def look_back() -> None:
    """What the sweep looks for among findings of late, among all that there are: nobody waits for this one."""
    supersede_of_series()
    for finding in awaiting_replacement(_AT_ONCE):
        supersede_older(finding)


def _supersede_of_series() -> None:
    supersede_of_series(since=lately())


def _supersede_by_newer() -> None:
    for finding in awaiting_replacement(_AT_ONCE, since=lately()):
        supersede_older(finding)


def _stop_forgotten() -> None:
    stop_forgotten(_AT_ONCE)


def _part_alone(part: Callable[[], object]) -> None:
    try:
        part()
    except DomainError as error:
        log.warning("life_not_tended", part=part.__name__, code=error.code, reason=error.message)


def _alone(finding_id: int, do: Callable[[Finding], object]) -> None:
    try:
        with transaction.atomic():
            do(held(finding_id))
    except DomainError as error:
        log.warning("finding_not_tended", finding=finding_id, code=error.code, reason=error.message)


def _unchecked() -> list[int]:
    """Candidates that are judged: those of suspected changes wait for their own trial, and for what it says of them."""
    judged = Q(trial__answered_at__isnull=False) | Q(trial=None, series__isnull=False)
    told = Q(branch=None) | Q(Exists(FindingVerdict.objects.filter(finding=OuterRef("pk"))))
    rows = Finding.objects.filter(judged, told, state=Finding.State.CANDIDATE)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _go_on_checking(finding: Finding) -> None:
    layout = Trial.objects.filter(key=layout_key(finding)).first()
    if layout is None:
        begin_checks(finding)
    elif layout.state in Trial.FINAL and layout.answered_at is not None:
        conclude_checks(finding)


def _look_for_mending(finding: Finding) -> None:
    if finding.state in (Finding.State.CONFIRMED, Finding.State.REPORTED):
        look_for_mending(finding)
