"""How the culprit of a finding is, or was, looked for, and what each patch of a series adds."""

from typing import Any

from rest_framework import serializers


class BisectionStepOut(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    round = serializers.IntegerField(help_text="Of the search; those before the bisection's own ended without answer.")
    kind = serializers.CharField()
    sha = serializers.CharField(help_text="Empty for the revert.")
    subject = serializers.CharField()
    answer = serializers.CharField(help_text="good, bad, skipped, unsure; empty while it is measured.")
    ratio = serializers.FloatField(
        allow_null=True, help_text="This revision / good end; of the step `culprit` / its parent."
    )
    reason = serializers.CharField()


class BisectionOut(serializers.Serializer[Any]):
    """On one machine, by the cell that moved most there."""

    id = serializers.IntegerField()
    machine = serializers.CharField()
    uarch = serializers.CharField()
    cell = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    round = serializers.IntegerField(help_text="Counted up when it is searched once more.")
    effect = serializers.FloatField(help_text="bad end / good end")
    sessions = serializers.IntegerField()
    boots = serializers.IntegerField()
    seconds = serializers.FloatField(help_text="Machine time spent.")
    left = serializers.IntegerField(help_text="Revisions that may be it.")
    steps_left = serializers.IntegerField()
    seconds_left = serializers.FloatField(allow_null=True)
    culprit_sha = serializers.CharField(help_text="Empty until the state is found.")
    culprit_subject = serializers.CharField()
    steps = BisectionStepOut(many=True)


class WalkCellOut(serializers.Serializer[Any]):
    uarch = serializers.CharField()
    machine = serializers.CharField()
    name = serializers.CharField()
    verdict = serializers.CharField()
    ratio = serializers.FloatField(allow_null=True, help_text="With the patch / without it.")
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    cumulative = serializers.FloatField(allow_null=True, help_text="Up to this patch / base.")
    cumulative_low = serializers.FloatField(allow_null=True)
    cumulative_high = serializers.FloatField(allow_null=True)


class WalkRowOut(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    subject = serializers.CharField()
    sha = serializers.CharField()
    sentence = serializers.CharField()
    cells = WalkCellOut(many=True)


class WalkOut(serializers.Serializer[Any]):
    """Which patches earn their place."""

    state = serializers.CharField()
    rows = WalkRowOut(many=True)
    closing = serializers.ListField(child=serializers.CharField())
