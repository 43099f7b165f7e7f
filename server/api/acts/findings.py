"""What people decide about findings: withdrawn, opened again, mended, accepted; and their reports, released or not."""

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import ActIn, Acting, ReasonIn, describe_act, filled
from server.api.measured import BoundedList
from server.api.permissions import person_of
from server.core.models import PersonToken
from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.ledger import accept, ask_for_fix, reopen, withdraw_acceptance
from server.detection.models import Acceptance, Finding, FindingState
from server.lab.models import TrialState
from server.reports.models import Report, ReportState
from server.reports.moderation import approve_report, reject_report
from server.results.models import Metric

_TRIAGE, _MODERATE = PersonToken.Scope.TRIAGE, PersonToken.Scope.MODERATE
_MOST_UARCHS = 100


class FindingActOut(serializers.Serializer[Any]):
    finding = serializers.IntegerField()
    state = serializers.ChoiceField(choices=FindingState.choices)
    acted = serializers.BooleanField(help_text="False: it was so already.")


def _answer(finding: Finding, *, acted: bool = True) -> Response:
    finding.refresh_from_db(fields=["state"])
    return Response({"finding": finding.pk, "state": finding.state, "acted": acted})


class _Triage(Acting):
    scope: ClassVar[PersonToken.Scope] = _TRIAGE


class FindingWithdrawalIn(ReasonIn):
    why = serializers.ChoiceField(choices=[why.value for why in Why], help_text="What it was, and not the code.")


class FindingWithdrawView(_Triage):
    @describe_act("finding_withdraw", FindingWithdrawalIn, {200: FindingActOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(FindingWithdrawalIn, request)
        finding = get_object_or_404(Finding, pk=pk)
        actor, why = person_of(request).actor, Why(form["why"])
        return _answer(finding, acted=invalidate(finding, actor=actor, why=why, reason=form["reason"]))


class FindingReopenView(_Triage):
    @describe_act("finding_reopen", ReasonIn, {200: FindingActOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(ReasonIn, request)
        finding = get_object_or_404(Finding, pk=pk)
        reopen(finding, actor=person_of(request).actor, reason=form["reason"])
        return _answer(finding)


class FixIn(ActIn):
    commit = serializers.RegexField(r"^[0-9a-f]{7,40}$", help_text="That is said to mend it, from 7 digits on.")


class FixOut(FindingActOut):
    trial = serializers.IntegerField()
    trial_state = serializers.ChoiceField(choices=TrialState.choices)


class FindingFixView(_Triage):
    @describe_act("finding_fix", FixIn, {202: FixOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(FixIn, request)
        finding = get_object_or_404(Finding, pk=pk)
        trial = ask_for_fix(finding, form["commit"], actor=person_of(request).actor)
        answer = {"finding": pk, "state": finding.state, "acted": True}
        return Response({**answer, "trial": trial.pk, "trial_state": trial.state}, status=202)


class AcceptanceIn(ReasonIn):
    """Without `benchmark` and `metric` all metrics are accepted, without `uarchs` on all microarchitectures."""

    benchmark = serializers.CharField(max_length=60, required=False)
    metric = serializers.CharField(max_length=60, required=False)
    uarchs = BoundedList(child=serializers.CharField(max_length=60), default=list, max_length=_MOST_UARCHS)
    expires_at = serializers.DateTimeField(allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        benchmark, name = attrs.pop("benchmark", None), attrs.pop("metric", None)
        if (benchmark is None) != (name is None):
            raise ValidationError({"metric": ["A metric is named with its benchmark."]})
        metric = Metric.objects.filter(benchmark__name=benchmark, name=name).first() if name else None
        if name and metric is None:
            raise ValidationError({"metric": [f"{benchmark} has no metric {name}."]})
        return {**attrs, "metric": metric}


class AcceptedOut(FindingActOut):
    acceptance = serializers.IntegerField(help_text="The line of the ledger.")


class FindingAcceptView(_Triage):
    @describe_act("finding_accept", AcceptanceIn, {200: AcceptedOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(AcceptanceIn, request)
        finding = get_object_or_404(Finding, pk=pk)
        known = finding.acceptances.order_by("-pk").values_list("pk", flat=True).first() or 0
        line = accept(finding, actor=person_of(request).actor, **form)
        answer = {"finding": pk, "state": finding.state, "acted": line.pk > known, "acceptance": line.pk}
        return Response(answer)


class AcceptanceWithdrawView(_Triage):
    @describe_act("acceptance_withdraw", ReasonIn, {200: AcceptedOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(ReasonIn, request)
        line = get_object_or_404(Acceptance.objects.select_related("finding"), pk=pk)
        acted = withdraw_acceptance(line, actor=person_of(request).actor, reason=form["reason"])
        line.finding.refresh_from_db(fields=["state"])
        answer = {"finding": line.finding_id, "state": line.finding.state, "acted": acted, "acceptance": pk}
        return Response(answer)


class ReportActOut(serializers.Serializer[Any]):
    report = serializers.IntegerField()
    state = serializers.ChoiceField(choices=ReportState.choices)


class _Moderation(Acting):
    scope: ClassVar[PersonToken.Scope] = _MODERATE


class ReportApproveView(_Moderation):
    @describe_act("report_approve", ReasonIn, {200: ReportActOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(ReasonIn, request), person_of(request).actor
        get_object_or_404(Report.objects.only("pk"), pk=pk)
        reason = f"approved by {actor}: {form['reason']}"
        return _told(approve_report(report_id=pk, reason=reason, actor=actor))


class ReportRejectView(_Moderation):
    @describe_act("report_reject", ReasonIn, {200: ReportActOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(ReasonIn, request), person_of(request).actor
        get_object_or_404(Report.objects.only("pk"), pk=pk)
        return _told(reject_report(report_id=pk, reason=f"rejected by {actor}: {form['reason']}", actor=actor))


def _told(report: Report) -> Response:
    return Response({"report": report.pk, "state": report.state})
