"""Series with their progress."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from server.api.v1.serializers.common import AuthorOut, RevisionOut, SessionBriefOut
from server.api.v1.serializers.findings import FindingOut
from server.api.v1.serializers.posting import (
    MOST_OLDER,
    MOST_PATCHES,
    MOST_STEPS,
    PatchOut,
    SenderOut,
    TransitionOut,
    VersionOut,
)
from server.core.models import Transition
from server.reports.models import Report
from server.reports.progress import ProgressState
from server.reports.stages import StageName, StageState
from server.sources.models import Series
from server.sources.trust.proved_senders import sender_rows


def _choices(words: Any) -> list[str]:
    return list(words.__args__)


PROGRESS_STATES = _choices(ProgressState)


class ProgressOut(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=PROGRESS_STATES)
    reason = serializers.CharField()


class BuildProgressOut(serializers.Serializer[Any]):
    arm = serializers.CharField()
    build = serializers.IntegerField(allow_null=True)
    config = serializers.CharField()
    toolchain = serializers.CharField()
    state = serializers.CharField(help_text="`missing` until it is wanted")
    detail = serializers.CharField()


class SessionProgressOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    session = serializers.IntegerField(allow_null=True)
    state = serializers.CharField(help_text="`missing` until it is planned")
    measured = serializers.IntegerField(help_text="boots")
    failed = serializers.IntegerField()
    planned = serializers.IntegerField()
    detail = serializers.CharField()


class StageOut(serializers.Serializer[Any]):
    name = serializers.ChoiceField(choices=_choices(StageName))
    state = serializers.ChoiceField(choices=_choices(StageState))
    detail = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    builds = BuildProgressOut(many=True)
    sessions = SessionProgressOut(many=True)


class FullProgressOut(ProgressOut):
    stages = StageOut(many=True)


class SeriesOut(serializers.ModelSerializer[Series]):
    # The context holds `progress` and `findings` by series id, each loaded for all series at once.
    message_id = serializers.CharField(source="first_message_id")
    list = serializers.CharField(source="mailing_list.name")
    progress = serializers.SerializerMethodField()
    finding = serializers.SerializerMethodField()

    class Meta:
        model = Series
        fields = [
            "id",
            "message_id",
            "list",
            "subject",
            "version",
            "minor",
            "total",
            "submitted_at",
            "received_at",
            "rfc",
            "resend",
            "tags",
            "change_id",
            "base_certain",
            "state",
            "reason",
            "state_since",
            "progress",
            "finding",
        ]

    @extend_schema_field(ProgressOut)
    def get_progress(self, series: Series) -> Any:
        return ProgressOut(self.context["progress"][series.pk]).data

    @extend_schema_field(FindingOut(allow_null=True))
    def get_finding(self, series: Series) -> Any:
        finding = self.context["findings"].get(series.pk)
        return FindingOut(finding).data if finding else None


class ReportOut(serializers.ModelSerializer[Report]):
    message_id = serializers.CharField(source="delivery.message_id", default=None, allow_null=True)
    delivery_state = serializers.CharField(source="delivery.state", default=None, allow_null=True)
    sent_at = serializers.DateTimeField(source="delivery.sent_at", default=None, allow_null=True)

    class Meta:
        model = Report
        fields = ["id", "state", "reason", "subject", "body", "message_id", "delivery_state", "sent_at"]


class SeriesDetailOut(SeriesOut):
    author = AuthorOut(source="*")
    base = RevisionOut(allow_null=True)
    head = RevisionOut(allow_null=True)
    # Read with `first_patches`.
    patches = PatchOut(
        source="first_patches",
        many=True,
        help_text=f"The first {MOST_PATCHES}; `total` says how many were announced, `series/ID/patches/` has all.",
    )
    sessions = SessionBriefOut(many=True)
    senders = serializers.SerializerMethodField()
    supersedes = VersionOut(source="last_replaced", many=True, help_text=f"The newest {MOST_OLDER}.")
    transitions = serializers.SerializerMethodField(help_text=f"The last {MOST_STEPS}.")
    report = serializers.SerializerMethodField()

    class Meta(SeriesOut.Meta):
        fields = [
            *SeriesOut.Meta.fields,
            "author",
            "senders",
            "checked_at",
            "superseded_by",
            "supersedes",
            "trace",
            "transitions",
            "base_commit",
            "prerequisites",
            "base",
            "base_how",
            "head",
            "benchmarks",
            "trailers",
            "patches",
            "sessions",
            "report",
        ]

    @extend_schema_field(FullProgressOut)
    def get_progress(self, series: Series) -> Any:
        return FullProgressOut(self.context["progress"][series.pk]).data

    @extend_schema_field(SenderOut(many=True))
    def get_senders(self, series: Series) -> Any:
        return SenderOut(sender_rows(series), many=True).data

    @extend_schema_field(TransitionOut(many=True))
    def get_transitions(self, series: Series) -> Any:
        steps = Transition.objects.filter(subject="series", subject_id=series.pk).order_by("-id")[:MOST_STEPS]
        return TransitionOut(list(steps)[::-1], many=True).data

    @extend_schema_field(ReportOut(allow_null=True))
    def get_report(self, series: Series) -> Any:
        report = getattr(self.context["findings"].get(series.pk), "report", None)
        return ReportOut(report).data if report else None


class StepOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    trace = serializers.CharField()
    subject = serializers.CharField(help_text="Kind of row: series, build, session, boot, attempt ...")
    subject_id = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]  # a name of its own in the answer
    before = serializers.CharField(help_text="Empty for the first step.")
    after = serializers.CharField()
    reason = serializers.CharField()
    actor = serializers.CharField(help_text="The person who did it; empty: the service itself.")


class HistoryOut(serializers.Serializer[Any]):
    series = serializers.IntegerField()
    steps = StepOut(many=True)
