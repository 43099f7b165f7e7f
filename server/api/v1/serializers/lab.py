"""Sessions with their boots and samples."""

from typing import Any

from rest_framework import serializers

from server.api.v1.serializers.common import SessionBriefOut
from server.api.v1.serializers.findings import ComparisonOut
from server.lab.models import Boot, Session


class BootOut(serializers.ModelSerializer[Boot]):
    outcome = serializers.CharField(source="reason", help_text="Why it is in this state.")
    notes = serializers.JSONField(help_text="Cases that gave no measurement, with the reason.")

    class Meta:
        model = Boot
        fields = [
            "position",
            "arm",
            "state",
            "outcome",
            "retries",
            "boot_id",
            "build_id",
            "started_at",
            "ended_at",
            "notes",
        ]


class SessionOut(SessionBriefOut):
    base_build = serializers.IntegerField(source="base_build_id")
    patched_build = serializers.IntegerField(source="patched_build_id")
    boots = BootOut(many=True)

    class Meta(SessionBriefOut.Meta):
        model = Session
        fields = [
            *SessionBriefOut.Meta.fields,
            "priority",
            "deadline_at",
            "needs",
            "base_build",
            "patched_build",
            "boots",
        ]


class SessionCellsOut(serializers.Serializer[Any]):
    """What was judged of a session, as it was measured: before the checks of a finding."""

    session = serializers.IntegerField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    next = serializers.URLField(allow_null=True, help_text="The next page of `cells`.")
    previous = serializers.URLField(allow_null=True)
    cells = ComparisonOut(many=True)


class ColumnOut(serializers.Serializer[Any]):
    """One (case, metric, core type). The five arrays have one entry for each boot that gave values."""

    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    unit = serializers.CharField()
    better = serializers.CharField()
    core_type = serializers.CharField()
    boots = serializers.ListField(child=serializers.IntegerField(), help_text="positions")
    arms = serializers.ListField(child=serializers.CharField())
    judged = serializers.ListField(
        child=serializers.BooleanField(),
        help_text="False for what came after the session had ended.",
    )
    warmup = serializers.ListField(
        child=serializers.IntegerField(), help_text="How many of the first values are not judged."
    )
    values = serializers.ListField(child=serializers.ListField(child=serializers.FloatField()))


class SamplesOut(serializers.Serializer[Any]):
    """Every value of a session, by column."""

    session = serializers.IntegerField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    clock = serializers.CharField()
    columns = ColumnOut(many=True)
