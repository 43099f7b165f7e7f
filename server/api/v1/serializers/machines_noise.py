"""What machines show between equal kernels, and questions about them."""

from typing import Any

from rest_framework import serializers


class NoiseOut(serializers.Serializer[Any]):
    """The A/A changes of one cell; effects are fractions."""

    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    core_type = serializers.CharField()
    comparisons = serializers.IntegerField(help_text="Of equal kernels.")
    false_alarms = serializers.IntegerField(help_text="Of these, those that claimed a change.")
    rejections = serializers.IntegerField(help_text="Of these, those whose p-value was at most 0.05.")
    change_95 = serializers.FloatField(help_text="95th percentile of their changes.")
    boot_sd = serializers.FloatField(allow_null=True, help_text="Standard deviation between boots, on logarithms.")
    mde = serializers.FloatField(allow_null=True, help_text="Median of what would have been seen.")
    min_effect = serializers.FloatField(help_text="Changes below this get no verdict.")
    last_at = serializers.DateTimeField()


class AlarmRateOut(serializers.Serializer[Any]):
    """The measured rate of false alarms, with its 95 % interval."""

    comparisons = serializers.IntegerField()
    false_alarms = serializers.IntegerField()
    rate = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)


class MachineNoiseOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField(help_text="Virtual machines are none.")
    alarms = AlarmRateOut()
    next = serializers.URLField(allow_null=True, help_text="The next page of `cells`.")
    previous = serializers.URLField(allow_null=True)
    cells = NoiseOut(many=True)


class MachineQuestionOut(serializers.Serializer[Any]):
    """Something that is the machine's and not the code's."""

    id = serializers.IntegerField()
    machine = serializers.CharField(source="machine.name")
    uarch = serializers.CharField(source="machine.uarch.name")
    kind = serializers.CharField()
    state = serializers.CharField()
    detail = serializers.CharField()
    reason = serializers.CharField(help_text="The answer, once there is one.")
    finding = serializers.IntegerField(source="finding_id", allow_null=True)
    created_at = serializers.DateTimeField()
    state_since = serializers.DateTimeField()
