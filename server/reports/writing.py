"""Which report is written when, and what becomes of it while its finding moves on; what a tree came to in a week.

Whatever changes a finding marks it as news. Whoever tells the news holds the finding, so that two who do it at once
write each report once.
"""

import hashlib
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q

from server.core.errors import DomainError
from server.core.reasons import NONE, Because
from server.detection.models import Finding
from server.reports.composer import Text, compose, gather_digest
from server.reports.composer.evidence import is_virtual
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.reports.moderation import why_blocked
from server.reports.outbox import may_be_told, queue_delivery
from server.reports.recipients import Envelope, envelope, envelope_below, envelope_of_branch
from server.reports.renewal import claims, has_begun, locked, needs_person, put_back, renew, written
from server.sources.models import Series, Tree

log = structlog.get_logger(__name__)

_ENDED = (Finding.State.INVALID, Finding.State.SUPERSEDED)
_REGRESSIONS = (Finding.Kind.REGRESSED, Finding.Kind.SPLIT)
_CLAIMS = (*_REGRESSIONS, Finding.Kind.IMPROVED)
# What a later mail puts right, or takes back.
_CLAIMING = (*Report.FIRST, Report.Kind.CORRECTION)
_GOOD_NEWS = "an improvement is no news for a list: a person decides whether it is told"
# Versions of one series; a longer chain is a loop or a joke.
_MOST_VERSIONS = 100
# Of one digest; its mail has room for fewer.
_MOST_IN_DIGEST = 60


def compose_report(*, finding_id: int) -> Report | None:
    """The first report of a finding, written now if there is none; None for a finding that nobody is told about.

    What must not be told incomplete gets a refused report with the reason. Where no moderation is wanted the report is
    approved and queued at once, unless it is about an improvement, which nobody has to act on.
    """
    with transaction.atomic():
        finding = _held(finding_id)
        if finding is None:
            raise DomainError("not-found", f"there is no finding {finding_id}")
        return _first(finding)


def tell_news(*, finding_id: int) -> bool:
    """Write, renew, reject and put right what is to be told of a finding now; False where it has no news.

    Harmless twice. A temporary error leaves it news for the next sweep.
    """
    with transaction.atomic():
        # Whoever comes second waits here, and then finds nothing left to do.
        finding = _held(finding_id)
        if finding is None or not finding.news:
            return False
        if finding.state in _ENDED:
            _reject_open(finding)
            _retract(finding)
        elif finding.state in Finding.STANDING and finding.state != Finding.State.BISECTING:
            _tell(finding)
        Finding.objects.filter(pk=finding.pk).update(news=False)
    return True


def _held(finding_id: int) -> Finding | None:
    rows = Finding.objects.select_for_update(of=("self",), no_key=True).filter(pk=finding_id)
    return rows.select_related("series__mailing_list", "branch__tree", "branch__head", "culprit").first()


def _tell(finding: Finding) -> None:
    first = _first(finding)
    if first is None:
        return
    if first.state == ReportState.SENT and finding.state == Finding.State.CONFIRMED:
        # Its mail left while it was in another state.
        finding.advance(Finding.State.REPORTED, Because.REPORTED("told before it was confirmed again"))
    for report_id in _open(finding).exclude(kind=Report.Kind.RETRACTION).order_by("pk").values_list("pk", flat=True):
        _go_on(locked(report_id))
    last = _last_claim(finding)
    if last is not None and last.told is not None:
        now = claims(finding)
        _correct(finding, last, now)
        _tell_culprit(finding, last, now)


def _open(finding: Finding) -> Any:
    return finding.reports.filter(state__in=Report.OPEN).exclude(kind__in=Report.WANTED)


def _last_claim(finding: Finding) -> Report | None:
    """The mail that left last, or may have, of those that say what the finding claims."""
    left = Q(state=ReportState.SENT) | Q(delivery__in_doubt=True, delivery__state=DeliveryState.FAILED)
    return finding.reports.filter(left, kind__in=_CLAIMING).select_related("delivery").order_by("-pk").first()


def _first(finding: Finding) -> Report | None:
    report = Report.objects.filter(first_of=finding).first()
    if report is not None:
        return report
    untold = finding.kind == Finding.Kind.INCONCLUSIVE and not finding.canary
    if untold or finding.state != Finding.State.CONFIRMED:
        return None
    if finding.series is not None:
        if finding.series.state != Series.State.APPLIED:
            return None
        earlier = told_before(finding)
        kind = Report.Kind.FOLLOW_UP if earlier else Report.Kind.SERIES
        return _write(kind, finding, answers=earlier, first_of=finding)
    # Without the commit that made it there is nobody who could do something about it.
    if finding.kind not in _REGRESSIONS or finding.culprit is None:
        return None
    return _write(Report.Kind.TREE, finding, answers=None, first_of=finding)


def told_before(finding: Finding) -> Report | None:
    """The report on the newest older version of which something was told that stands."""
    row, seen = finding.previous, {finding.pk}
    while row is not None and row.pk not in seen and len(seen) < _MOST_VERSIONS:
        seen.add(row.pk)
        report = Report.objects.filter(first_of=row, state=ReportState.SENT).select_related("finding").first()
        if report is not None and row.state != Finding.State.INVALID:
            return report
        row = row.previous
    return None


def _write(kind: str, finding: Finding, *, answers: Report | None, **once: Any) -> Report:
    """`once`: what the report is the only one of, `first_of` or `key`."""
    fields = {"kind": kind, "finding": finding, "answers": answers, "trace": finding.trace, **once}
    try:
        text, where = written(kind, finding, answers), _where(kind, finding, answers)
    except DomainError as error:
        if not error.permanent:
            raise
        log.warning("report_refused", trace=finding.trace, finding=finding.pk, kind=kind, reason=error.message)
        told = Because.INCOMPLETE_REPORT(error.message).columns()
        return Report.objects.create(**fields, state=ReportState.REFUSED, **told).record_creation()
    return _store(fields, text, where)


def _where(kind: str, finding: Finding, answers: Report | None) -> Envelope:
    if kind == Report.Kind.TREE:
        return envelope_of_branch(finding)
    if kind in Report.FIRST:
        assert finding.series is not None
        return envelope(finding.series)
    assert answers is not None
    return envelope_below(answers)


def _store(fields: dict[str, Any], text: Text, where: Envelope) -> Report:
    finding = fields["finding"]
    report = Report(
        **fields,
        state=ReportState.DRAFT,
        subject=text.subject,
        body=text.body,
        composed=text.body,
        told=claims(finding),
        in_reply_to=where.in_reply_to,
        references=list(where.references),
        to=list(where.to),
        cc=list(where.cc),
    )
    moderated = report.is_moderated
    asked = needs_person(report.kind, finding, moderated=moderated)
    held = why_blocked(finding) or (_GOOD_NEWS if asked and not moderated else "")
    reason = Because.HELD_BACK(held) if held else NONE
    report.reason, report.reason_code = str(reason), reason.code
    report.save(force_insert=True)
    report.record_creation()
    if not held and not moderated:
        _let_go(report)
    return report


def _let_go(report: Report) -> None:
    if report.state == ReportState.DRAFT:
        report.advance(ReportState.APPROVED, Because.NOT_MODERATED())
    delivery = queue_delivery(report=report)
    if delivery.state == DeliveryState.FAILED:
        # It was put back before it left: nobody has it.
        delivery.advance(DeliveryState.QUEUED, Because.NOT_MODERATED(), tries=0, not_before=None)


def _go_on(report: Report) -> None:
    """An open report, as its finding is now."""
    finding = report.finding
    assert finding is not None
    # Whoever let go of what he held decides once more.
    of_person = report.reason_code == Because.BY_PERSON
    try:
        renewed = renew(report)
    except DomainError as error:
        if not error.permanent:
            raise
        _keep_back(report, Because.INCOMPLETE_REPORT(error.message))
        return
    unread = renewed is None or renewed.unread or of_person
    if report.state == ReportState.DRAFT and of_person and renewed is not None:
        report.note(Because.BY_PERSON("a person let go of it: he decides about the new text too"))
    if not unread and report.state == ReportState.DRAFT and not why_blocked(finding):
        # A person was to decide about what it said before.
        _let_go(report)
    elif report.state == ReportState.APPROVED and _was_taken_out(report):
        # What could not be told for a while can be now.
        _let_go(report)


def _was_taken_out(report: Report) -> bool:
    return Delivery.objects.filter(
        report=report, state=DeliveryState.FAILED, reason_code=Because.NOT_WANTED, in_doubt=False
    ).exists()


def _keep_back(report: Report, reason: Any) -> None:
    """What cannot be told any more leaves the outbox; what a person holds stays with that person."""
    if report.state == ReportState.APPROVED and not has_begun(report):
        put_back(report, reason)
    elif report.state == ReportState.DRAFT:
        report.note(reason)


def _reject_open(finding: Finding) -> None:
    """Nobody is told what does not stand any more."""
    if finding.state == Finding.State.INVALID:
        why = Because.WITHDRAWN(f"its finding was withdrawn: {finding.reason}")
    else:
        why = Because.REPLACED(f"another finding stands in its place: {finding.reason}")
    for report_id in _open(finding).exclude(kind=Report.Kind.RETRACTION).order_by("pk").values_list("pk", flat=True):
        report = locked(report_id)
        if report.state in Report.OPEN and not has_begun(report):
            put_back(report, why, to=ReportState.REJECTED)


def _retract(finding: Finding) -> None:
    """To all who were told: once, since a finding that was withdrawn stays so."""
    last = _last_claim(finding)
    key = f"finding:{finding.pk}:retraction:1"
    if finding.state != Finding.State.INVALID or last is None or Report.objects.filter(key=key).exists():
        return
    _write(Report.Kind.RETRACTION, finding, answers=last, key=key)


def _correct(finding: Finding, last: Report, now: dict[str, list[int]]) -> None:
    """What was told of its cells is not what it says now; a correction that has not left is written anew instead."""
    waiting = _open(finding).filter(kind=Report.Kind.CORRECTION).first()
    if now["moved"] == (last.told or {}).get("moved"):
        if waiting is not None and not has_begun(waiting):
            put_back(locked(waiting.pk), Because.WITHDRAWN("its finding says again what was told"), to="rejected")
        return
    # One that was needless before it left may be needed after all.
    needless = finding.reports.filter(
        kind=Report.Kind.CORRECTION, state=ReportState.REJECTED, reason_code=Because.WITHDRAWN
    )
    key = f"finding:{finding.pk}:correction:{last.pk}:{_mark(now['moved'])}:{needless.count()}"
    if waiting is None and not Report.objects.filter(key=key).exists():
        _write(Report.Kind.CORRECTION, finding, answers=last, key=key)


def _tell_culprit(finding: Finding, last: Report, now: dict[str, list[int]]) -> None:
    """A bisection that ended after the mail had left; not beside a correction, which tells of it as well."""
    told: set[int] = set()
    for report in finding.reports.filter(state__in=[ReportState.SENT, *Report.OPEN]).exclude(told=None):
        told.update((report.told or {}).get("culprits", ()))
    if not may_be_told(finding) or not set(now["culprits"]) - told:
        return
    key = f"finding:{finding.pk}:bisection:{_mark(now['culprits'])}"
    if not Report.objects.filter(key=key).exists():
        _write(Report.Kind.BISECTION, finding, answers=last, key=key)


def _mark(ids: list[int]) -> str:
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def digest_for(tree: Tree, since: datetime, until: datetime) -> Text | None:
    """What came up in a tree, and in series for it, or went on in that time; None where nothing did.

    Nothing of virtual machines: a digest leaves the site.
    """
    moved = Finding.objects.filter(state_since__gte=since, state_since__lt=until).order_by().values("pk")
    made = Finding.objects.filter(created_at__gte=since, created_at__lt=until, state_since__lt=until)
    known = Q(state__in=Finding.STANDING, kind__in=_CLAIMS)
    # What was told of it is news, when it is withdrawn.
    known |= Q(state=Finding.State.INVALID, report__state=ReportState.SENT)
    of_tree = Q(branch__tree=tree) | Q(series__base__tree=tree)
    rows = Finding.shown().filter(known, of_tree, pk__in=moved.union(made.order_by().values("pk")), virtual=False)
    rows = rows.select_related("series", "branch__tree", "culprit", "trial")
    found = [finding for finding in rows.order_by("-pk")[:_MOST_IN_DIGEST] if not is_virtual(finding)]
    return compose(gather_digest(tree, since, until, found)) if found else None
