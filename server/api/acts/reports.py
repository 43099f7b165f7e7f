"""What moderators decide about mails: held, let go, edited. `seen` says up to which step of its life it was read."""

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import Acting, ReasonIn, describe_act, filled
from server.api.permissions import person_of
from server.core.models import PersonToken
from server.reports.models import Report, ReportState
from server.reports.moderation import approve_report, edit_report, hold_report, reject_report, release_report

_MODERATE = PersonToken.Scope.MODERATE


class ReadIn(ReasonIn):
    seen = serializers.IntegerField(
        min_value=0, required=False, help_text="The last step of its life that was read; 409 where more has happened."
    )


class EditIn(ReasonIn):
    seen = serializers.IntegerField(min_value=0, help_text="The last step of its life that was read.")
    body = serializers.CharField(
        max_length=20_000, trim_whitespace=False, help_text="At most 60 lines of 78 columns, printable ASCII."
    )


class ModerationOut(serializers.Serializer[Any]):
    report = serializers.IntegerField()
    state = serializers.ChoiceField(choices=ReportState.choices)
    body = serializers.CharField()


class ReportActOut(serializers.Serializer[Any]):
    report = serializers.IntegerField()
    state = serializers.ChoiceField(choices=ReportState.choices)


class _Moderation(Acting):
    scope: ClassVar[PersonToken.Scope] = _MODERATE


class ReportApproveView(_Moderation):
    @describe_act("report_approve", ReadIn, {200: ReportActOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(ReadIn, request), person_of(request).actor
        get_object_or_404(Report.objects.only("pk"), pk=pk)
        reason = f"approved by {actor}: {form['reason']}"
        return _decided(approve_report(report_id=pk, reason=reason, actor=actor, seen=form.get("seen")))


class ReportRejectView(_Moderation):
    @describe_act("report_reject", ReadIn, {200: ReportActOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(ReadIn, request), person_of(request).actor
        get_object_or_404(Report.objects.only("pk"), pk=pk)
        reason = f"rejected by {actor}: {form['reason']}"
        return _decided(reject_report(report_id=pk, reason=reason, actor=actor, seen=form.get("seen")))


class ReportHoldView(_Moderation):
    @describe_act("report_hold", ReadIn, {200: ModerationOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form = _known(ReadIn, request, pk)
        done = hold_report(report_id=pk, reason=form["reason"], actor=person_of(request).actor, seen=form.get("seen"))
        return _told(done)


class ReportReleaseView(_Moderation):
    @describe_act("report_release", ReadIn, {200: ModerationOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form = _known(ReadIn, request, pk)
        done = release_report(
            report_id=pk, reason=form["reason"], actor=person_of(request).actor, seen=form.get("seen")
        )
        return _told(done)


class ReportEditView(_Moderation):
    @describe_act("report_edit", EditIn, {200: ModerationOut}, _MODERATE)
    def post(self, request: Request, pk: int) -> Response:
        form = _known(EditIn, request, pk)
        actor = person_of(request).actor
        return _told(
            edit_report(report_id=pk, body=form["body"], seen=form["seen"], actor=actor, reason=form["reason"])
        )


def _known(form: type[ReasonIn], request: Request, pk: int) -> dict[str, Any]:
    given = filled(form, request)
    get_object_or_404(Report.objects.only("pk"), pk=pk)
    return given


def _told(report: Report) -> Response:
    return Response({"report": report.pk, "state": report.state, "body": report.body})


def _decided(report: Report) -> Response:
    return Response({"report": report.pk, "state": report.state})
