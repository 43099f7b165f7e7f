"""What is told of findings, and what people took as its price: reports, their mails, accepted trade-offs."""

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    IdFilter,
    NameFilter,
    SinceFilter,
    UntilFilter,
    YesOrNoFilter,
)
from server.api.formats import PlainRows
from server.api.public import PublicMixin, describe
from server.api.v1.findings import AcceptanceOut
from server.detection.lifecycle.ledger import holding_now
from server.detection.models import Acceptance, Finding, FindingVerdict
from server.lab.models import Microarchitecture
from server.reports.models import CommandState, Delivery, DeliveryState, MailCommand, Report, ReportState
from server.reports.subscribers.ports import kcidb_report, patchwork_check, regzbot_lines, trailers
from server.results.models import Metric
from server.sources.models import Message


class ReportOut(serializers.ModelSerializer[Report]):
    message_id = serializers.CharField(source="delivery.message_id", default=None, allow_null=True)
    delivery_state = serializers.CharField(source="delivery.state", default=None, allow_null=True)
    sent_at = serializers.DateTimeField(source="delivery.sent_at", default=None, allow_null=True)

    class Meta:
        model = Report
        list_serializer_class = PlainRows
        fields = [
            "id",
            "kind",
            "state",
            "reason",
            "reason_code",
            "subject",
            "body",
            "message_id",
            "delivery_state",
            "sent_at",
        ]


class ReportRowOut(serializers.ModelSerializer[Report]):
    """Without its text, which the series' answer and the finding's page have."""

    series = serializers.IntegerField(source="finding.series_id", allow_null=True)
    message_id = serializers.CharField(source="delivery.message_id", default=None, allow_null=True)
    delivery_state = serializers.ChoiceField(
        source="delivery.state", choices=DeliveryState.choices, default=None, allow_null=True
    )
    sent_at = serializers.DateTimeField(source="delivery.sent_at", default=None, allow_null=True)

    class Meta:
        model = Report
        list_serializer_class = PlainRows
        fields = [
            "id",
            "kind",
            "answers",
            "finding",
            "series",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "created_at",
            "subject",
            "released",
            "message_id",
            "delivery_state",
            "sent_at",
        ]


class DeliveryOut(serializers.ModelSerializer[Delivery]):
    """One mail. To whom it goes stands in no answer."""

    finding = serializers.IntegerField(source="report.finding_id")
    series = serializers.IntegerField(source="report.finding.series_id", allow_null=True)
    subject = serializers.CharField(source="report.subject")

    class Meta:
        model = Delivery
        list_serializer_class = PlainRows
        fields = [
            "id",
            "report",
            "finding",
            "series",
            "subject",
            "message_id",
            "state",
            "reason_code",
            "state_since",
            "created_at",
            "tries",
            "not_before",
            "sent_at",
        ]


class MailCommandOut(serializers.ModelSerializer[MailCommand]):
    """A line `#tidemark ...` of a mail that answers one of ours, whether it was obeyed or not."""

    message = serializers.IntegerField(source="message_id", help_text="The mail, in `messages/`.")
    message_id = serializers.CharField(source="message.message_id", help_text="Its Message-ID.")
    report = serializers.IntegerField(source="delivery.report_id", help_text="Whose mail it answers.")
    finding = serializers.IntegerField(source="delivery.report.finding_id", allow_null=True)
    series = serializers.IntegerField(source="delivery.report.finding.series_id", default=None, allow_null=True)
    answer = serializers.IntegerField(source="answer_id", allow_null=True, help_text="The report that answers it.")
    trial = serializers.IntegerField(source="trial_id", allow_null=True, help_text="What was measured for it.")

    class Meta:
        model = MailCommand
        list_serializer_class = PlainRows
        fields = [
            "id",
            "message",
            "message_id",
            "report",
            "finding",
            "series",
            "line",
            "text",
            "verb",
            "sender",
            "role",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "created_at",
            "trial",
            "answer",
        ]


class AcceptanceRowOut(AcceptanceOut):
    series = serializers.IntegerField(source="finding.series_id", allow_null=True)
    benchmark = serializers.CharField(source="metric.benchmark.name", default=None, allow_null=True)
    active = serializers.BooleanField(help_text="It is neither withdrawn nor over.")

    class Meta(AcceptanceOut.Meta):
        fields = ["id", "finding", "series", "benchmark", *AcceptanceOut.Meta.fields, "active"]


class ReportFilter(Filters):
    state = filters.ChoiceFilter(choices=ReportState.choices)
    kind = filters.ChoiceFilter(choices=Report.Kind.choices)
    finding = IdFilter(field_name="finding_id")
    series = IdFilter(field_name="finding__series_id")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Report
        fields: tuple[str, ...] = ()


class DeliveryFilter(Filters):
    state = filters.ChoiceFilter(choices=DeliveryState.choices)
    waiting = YesOrNoFilter(method="by_waiting", label="whether it is still to be sent")
    finding = IdFilter(field_name="report__finding_id")
    series = IdFilter(field_name="report__finding__series_id")
    message_id = filters.CharFilter(method="by_message_id", label="with or without its angle brackets")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Delivery
        fields: tuple[str, ...] = ()

    def by_waiting(self, queryset: QuerySet[Delivery], _name: str, value: bool) -> QuerySet[Delivery]:  # noqa: FBT001 (django-filter calls it so)
        waiting = (DeliveryState.QUEUED, DeliveryState.SENDING)
        return queryset.filter(state__in=waiting) if value else queryset.exclude(state__in=waiting)

    def by_message_id(self, queryset: QuerySet[Delivery], _name: str, value: str) -> QuerySet[Delivery]:
        return queryset.filter(message_id=value.strip().strip("<>"))


class MailCommandFilter(Filters):
    state = filters.ChoiceFilter(choices=CommandState.choices)
    sender = filters.CharFilter(method="by_sender", label="address of its sender")
    message = IdFilter(field_name="message_id")
    finding = IdFilter(field_name="delivery__report__finding_id")
    series = IdFilter(field_name="delivery__report__finding__series_id")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = MailCommand
        fields: tuple[str, ...] = ()

    def by_sender(self, queryset: QuerySet[MailCommand], _name: str, value: str) -> QuerySet[MailCommand]:
        return queryset.filter(sender=value.strip().lower())


class AcceptanceFilter(Filters):
    uarch = NameFilter(named=Microarchitecture, path="pk", method="by_uarch", label="for which it holds")
    metric = NameFilter(named=Metric, path="metric", method="by_metric", label="for which it holds")
    finding = IdFilter(field_name="finding_id")
    active = YesOrNoFilter(field_name="active", label="whether it is neither withdrawn nor over")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Acceptance
        fields: tuple[str, ...] = ()

    def by_uarch(self, queryset: QuerySet[Acceptance], _name: str, value: list[int]) -> QuerySet[Acceptance]:
        """Named by the line; or part of the finding, where the line names none."""
        names = list(Microarchitecture.objects.filter(pk__in=value).values_list("name", flat=True))
        told = FindingVerdict.objects.filter(finding=OuterRef("finding"), uarch__in=value)
        return queryset.filter(Q(uarchs__contains=names) | Q(Exists(told), uarchs=[]))

    def by_metric(self, queryset: QuerySet[Acceptance], _name: str, value: list[int]) -> QuerySet[Acceptance]:
        return queryset.filter(Q(metric__in=value) | Q(metric=None))


_UNTOLD = ("body", "to", "cc", "references")
_UNTOLD_FINDING = tuple(f"finding__{name}" for name in Finding.LONG)


class ReportListView(PublicMixin, generics.ListAPIView[Report]):
    keeps = True
    queryset = Report.shown().select_related("finding", "delivery").defer(*_UNTOLD, *_UNTOLD_FINDING)
    serializer_class = ReportRowOut
    filterset_class = ReportFilter

    @describe("report_list", ReportRowOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class DeliveryListView(PublicMixin, generics.ListAPIView[Delivery]):
    keeps = True
    queryset = (
        Delivery.shown()
        .select_related("report__finding")
        .defer(*(f"report__{name}" for name in (*_UNTOLD, *_UNTOLD_FINDING)))
    )
    serializer_class = DeliveryOut
    filterset_class = DeliveryFilter

    @describe("delivery_list", DeliveryOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MailCommandListView(PublicMixin, generics.ListAPIView[MailCommand]):
    keeps = True
    queryset = MailCommand.objects.select_related("message", "delivery__report__finding").defer(
        *(f"message__{name}" for name in Message.LONG),
        *(f"delivery__report__{name}" for name in (*_UNTOLD, *_UNTOLD_FINDING)),
    )
    serializer_class = MailCommandOut
    filterset_class = MailCommandFilter

    @describe("mail_command_list", MailCommandOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class AcceptanceListView(PublicMixin, generics.ListAPIView[Acceptance]):
    serializer_class = AcceptanceRowOut
    filterset_class = AcceptanceFilter

    def get_queryset(self) -> QuerySet[Acceptance]:
        return holding_now(Acceptance.objects.select_related("finding", "metric__benchmark").defer(*_UNTOLD_FINDING))

    @describe("acceptance_list", AcceptanceRowOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class PatchworkCheckOut(serializers.Serializer[Any]):
    message_id = serializers.CharField(help_text="Of the patch at which the check stands: the last one.")
    check = serializers.JSONField(help_text="As Patchwork's API takes it: state, target_url, context, description.")


class KcidbOut(serializers.Serializer[Any]):
    """After KCIDB's schema 5.3."""

    version = serializers.JSONField()
    checkouts = serializers.JSONField()
    builds = serializers.JSONField()
    tests = serializers.JSONField()


class LinesOut(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="Lines of plain ASCII.")


class PortView(PublicMixin, generics.GenericAPIView[Finding]):
    """What a finding says in the words of another system. 404 where there is nothing that it could say there."""

    keeps = True
    queryset = Finding.objects.select_related(
        "series__base__tree", "branch__tree", "culprit", "before", "after", "fix", "trial"
    )

    def found(self, pk: int) -> Finding:
        return get_object_or_404(self.get_queryset(), pk=pk)


class FindingPatchworkView(PortView):
    serializer_class = PatchworkCheckOut

    @describe("finding_patchwork", PatchworkCheckOut)
    def get(self, _request: Request, pk: int) -> Response:
        return Response(patchwork_check(self.found(pk)))


class FindingKcidbView(PortView):
    serializer_class = KcidbOut

    @describe("finding_kcidb", KcidbOut)
    def get(self, _request: Request, pk: int) -> Response:
        return Response(kcidb_report(self.found(pk)))


class FindingRegzbotView(PortView):
    serializer_class = LinesOut

    @describe("finding_regzbot", LinesOut)
    def get(self, _request: Request, pk: int) -> Response:
        return Response({"text": regzbot_lines(self.found(pk))})


class FindingTrailersView(PortView):
    serializer_class = LinesOut

    @describe("finding_trailers", LinesOut)
    def get(self, _request: Request, pk: int) -> Response:
        return Response({"text": trailers(self.found(pk))})
