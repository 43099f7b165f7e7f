"""What subscribers and connected systems are told: one row for each event, however often it is looked for."""

import hashlib
import json
import textwrap
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Max, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.tasks import enqueue
from server.detection.models import Finding, FindingState
from server.reports.composer import Text, compose, gather
from server.reports.composer.evidence import is_virtual
from server.reports.composer.wording import plain
from server.reports.models import HookCall, ReadingMark, Report, ReportState, Subscription
from server.reports.outbox import CLAIMED, queue_delivery
from server.reports.renewal import claims
from server.reports.subscribers.calls import configured
from server.reports.subscribers.ports import PORTS, page_of
from server.reports.subscribers.subscription import active_subscriptions, matches, wish
from server.reports.writing import digest_for

log = structlog.get_logger(__name__)

_EVENTS = {
    FindingState.CONFIRMED: "confirmed",
    FindingState.BISECTING: "confirmed",
    FindingState.REPORTED: "confirmed",
    FindingState.FIXED: "fixed",
    FindingState.ACCEPTED: "accepted",
    FindingState.INVALID: "withdrawn",
    FindingState.SUPERSEDED: "superseded",
}
_FIRST = CLAIMED
# What a mail is worth; a webhook is told of all.
_MAILED = frozenset({_FIRST, "withdrawn", "fixed"})
_READER = "notices"
_MOST_STEPS = 2000
# Longer than any transaction goes on: a step that is written down later has the smaller number by then.
_SETTLES = timedelta(minutes=5)
_SUBJECT, _WIDTH = 150, 72
_WEEK = timedelta(days=7)


def notify(*, finding_id: int) -> int:
    """Write what there is to tell of one finding as it stands; returns how many rows are new. Harmless twice."""
    finding = _rows().filter(pk=finding_id).first()
    event = _EVENTS.get(FindingState(finding.state)) if finding else None
    if finding is None or event is None or is_virtual(finding):
        return 0
    calls, mails = list[HookCall](), list[tuple[Subscription, str]]()
    told = _told_before(finding)
    for subscription in active_subscriptions().filter(pace=Subscription.Pace.EACH):
        key = f"notice:{subscription.pk}:{finding.pk}:{event}"
        if key in told or not _wanted(subscription, finding, event, told):
            continue
        if subscription.way == Subscription.Way.HOOK:
            calls.append(_to_hook(finding, event, key, subscription))
        elif event in _MAILED:
            mails.append((subscription, key))
    calls += _for_ports(finding, event, told)
    with transaction.atomic():
        made = HookCall.objects.bulk_create(calls, ignore_conflicts=True)
        for call in HookCall.objects.filter(key__in=[call.key for call in calls]):
            enqueue("reports.call", call.pk)
    return len(made) + _mail(finding, event, mails)


def event_document(finding: Finding, event: str) -> dict[str, Any]:
    """What a webhook gets: enough to act on without another request."""
    tree = (
        finding.branch.tree
        if finding.branch
        else finding.series.base.tree
        if finding.series and finding.series.base
        else None
    )
    return {
        "type": f"finding.{event}",
        "timestamp": finding.state_since.isoformat(),
        "data": {
            "finding": finding.pk,
            "kind": finding.kind,
            "state": finding.state,
            "headline": finding.headline,
            "reason_code": finding.reason_code,
            "verdicts": [
                {"uarch": row.uarch.name, "verdict": row.verdict} for row in finding.verdicts.select_related("uarch")
            ],
            "tree": tree.name if tree else None,
            "branch": finding.branch.name if finding.branch else None,
            "series": finding.series_id,
            "message_id": finding.series.first_message_id if finding.series else None,
            "culprit": finding.culprit.sha if finding.culprit else None,
            "page": page_of(finding),
            "api": f"{settings.SITE_URL}/api/v1/findings/{finding.pk}/",
        },
    }


def tell_what_moved() -> int:
    """`notify` of each finding that took a step, or whose report did, since the last time; how many rows are new.

    The mark follows behind what was told, so that nothing is lost, whatever ends this process; nothing is told twice.
    """
    newest = Transition.objects.aggregate(Max("pk"))["pk__max"] or 0
    mark, _ = ReadingMark.objects.get_or_create(reader=_READER, defaults={"up_to": newest})
    rows = Transition.objects.filter(pk__gt=mark.up_to).order_by("pk")
    steps = list(rows.values_list("pk", "subject", "subject_id", "at")[:_MOST_STEPS])
    made = sum(notify(finding_id=pk) for pk in _moved(steps)) if _is_anybody_told() else 0
    before = clock.now() - _SETTLES
    settled = [pk for pk, *_ in takewhile(lambda step: step[3] < before, steps)]
    if settled:
        ReadingMark.objects.filter(reader=_READER, up_to__lt=settled[-1]).update(up_to=settled[-1])
    return made


def _moved(steps: Iterable[tuple[int, str, int, datetime]]) -> list[int]:
    """Findings, in the order of their first step; what is told elsewhere waits for a report to leave."""
    known = [(subject, pk) for _, subject, pk, _ in steps if subject in ("finding", "report")]
    reports = Report.objects.filter(pk__in=[pk for subject, pk in known if subject == "report"])
    of = dict(reports.values_list("pk", "finding"))
    found = (pk if subject == "finding" else of.get(pk) for subject, pk in known)
    return list(dict.fromkeys(pk for pk in found if pk is not None))


def write_digests() -> int:
    """The digest of the last whole week (Monday to Monday, UTC) for each who asked for one; none of a quiet week."""
    now = clock.now()
    monday = (now - timedelta(days=now.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    year, week, _ = (monday - _WEEK).isocalendar()
    written = 0
    for subscription in active_subscriptions().filter(pace=Subscription.Pace.WEEKLY, created_at__lt=monday):
        key = f"digest:{subscription.pk}:{year}-W{week:02}"
        if Report.objects.filter(key=key).exists():
            continue
        tree = subscription.tree
        assert tree is not None
        if text := digest_for(tree, monday - _WEEK, monday):
            written += _send(Report.Kind.DIGEST, key, subscription, text, None)
    return written


def _rows() -> QuerySet[Finding]:
    return Finding.shown().select_related("branch__tree", "series__base__tree", "culprit", "before", "after", "fix")


def _is_anybody_told() -> bool:
    return configured("patchwork") or configured("kcidb") or active_subscriptions().exists()


def _told_before(finding: Finding) -> set[str]:
    calls = HookCall.objects.filter(finding=finding).values_list("key", flat=True)
    return {*calls, *Report.objects.filter(finding=finding, kind=Report.Kind.NOTICE).values_list("key", flat=True)}


def _wanted(subscription: Subscription, finding: Finding, event: str, told: Iterable[str]) -> bool:
    """What became of a claim is told to whom the claim was told, and nobody else."""
    if event != _FIRST:
        return f"notice:{subscription.pk}:{finding.pk}:{_FIRST}" in told
    return finding.created_at >= subscription.created_at and matches(subscription, finding)


def _call(finding: Finding, event: str, key: str, **fields: Any) -> HookCall:
    return HookCall(state=HookCall.State.QUEUED, trace=finding.trace, finding=finding, event=event, key=key, **fields)


def _to_hook(finding: Finding, event: str, key: str, subscription: Subscription) -> HookCall:
    document = event_document(finding, event)
    return _call(finding, event, key, target=HookCall.Target.WEBHOOK, document=document, subscription=subscription)


def _for_ports(finding: Finding, event: str, told: Iterable[str]) -> list[HookCall]:
    """Nothing is told elsewhere of what its own thread was not told: a person may still hold it back."""
    report = Report.objects.filter(first_of=finding, state=ReportState.SENT)
    made = list[HookCall]()
    for target, document in PORTS.items():
        # What is told anew of its cells is told there as well.
        key = f"{target}:{finding.pk}:{event}:{_mark(finding)}"
        if not configured(target) or key in told or not report.exists():
            continue
        try:
            made.append(_call(finding, event, key, target=target, document=document(finding)))
        except DomainError as error:
            log.info("not_for_port", trace=finding.trace, finding=finding.pk, target=target, reason=error.message)
    return made


def _mark(finding: Finding) -> str:
    return hashlib.sha256(json.dumps(claims(finding), sort_keys=True).encode()).hexdigest()[:12]


def _mail(finding: Finding, event: str, wanted: list[tuple[Subscription, str]]) -> int:
    if not wanted:
        return 0
    try:
        text = compose(gather(finding)) if event == _FIRST else _ended(finding, event)
    except DomainError as error:
        log.info("notice_not_written", trace=finding.trace, finding=finding.pk, reason=error.message)
        return 0
    return sum(_send(Report.Kind.NOTICE, key, subscription, text, finding) for subscription, key in wanted)


def _ended(finding: Finding, event: str) -> Text:
    """What became of a claim."""
    lines = [f"Finding {finding.pk} is {event}: {finding.reason or FindingState(finding.state).label}"]
    lines += ["", f"It said: {finding.headline}", "", page_of(finding)]
    wrapped = [part for line in lines for part in (textwrap.wrap(plain(line), _WIDTH) or [""])]
    return Text(f"{event.capitalize()}: {finding.headline}", "\n".join(wrapped) + "\n")


def _send(kind: str, key: str, subscription: Subscription, text: Text, finding: Finding | None) -> int:
    """A mail of its own for each subscriber, who asked for it: nobody else has to release it."""
    why = f"You get this because you asked for {wish(subscription)}; to end it: {settings.SITE_URL}/subscriptions/"
    body = "\n".join([*textwrap.wrap(plain(why), _WIDTH, break_on_hyphens=False), "", text.body])
    with transaction.atomic():
        report, is_new = Report.objects.get_or_create(
            key=key,
            defaults={
                "kind": kind,
                "finding": finding,
                "state": ReportState.APPROVED,
                "released": True,
                "subject": _notice_subject(kind, text, finding),
                "body": body,
                "composed": body,
                "to": [subscription.user.email],
                **({"trace": finding.trace} if finding else {}),
            },
        )
        if is_new:
            report.record_creation()
            queue_delivery(report=report)
    return int(is_new)


def _notice_subject(kind: str, text: Text, finding: Finding | None) -> str:
    if kind == Report.Kind.DIGEST or finding is None:
        return text.subject
    said = finding.headline if text.subject.startswith("Re: ") else text.subject
    return f"[tidemark] {plain(said)}"[:_SUBJECT]
