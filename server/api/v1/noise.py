"""What machines show by themselves: noise between equal kernels, and questions for people."""

from typing import Any

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
)
from server.api.formats import Rows
from server.api.pagination import CellPages
from server.api.public import PAGING, PublicMixin, describe, page_of, paging
from server.detection.models import MachineQuestion
from server.detection.models.timeline import QuestionState
from server.detection.noise.profiles import alarm_rate, noise_profiles, noise_row
from server.lab.models import Machine


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
    reason_code = serializers.CharField()
    finding = serializers.IntegerField(source="finding_id", allow_null=True)
    created_at = serializers.DateTimeField()
    state_since = serializers.DateTimeField()


class QuestionFilter(Filters):
    machine = NameFilter(named=Machine, path="machine")
    kind = filters.ChoiceFilter(choices=MachineQuestion.Kind.choices)
    state = filters.ChoiceFilter(choices=QuestionState.choices)
    finding = IdFilter(field_name="finding_id")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = MachineQuestion
        fields: tuple[str, ...] = ()


class MachineNoiseView(PublicMixin, generics.GenericAPIView[Machine]):
    serializer_class = MachineNoiseOut
    pagination_class = CellPages
    takes = PAGING
    rows = Rows("cells", NoiseOut, ("machine", "uarch", "virtual", "evidence"))

    @describe("machine_noise", MachineNoiseOut, parameters=paging(CellPages))
    def get(self, request: Request, name: str) -> Response:
        machine = get_object_or_404(Machine.objects.select_related("uarch"), name=name)
        rows, links = page_of(self, request, noise_profiles(machine))
        answer = {
            "machine": machine.name,
            "uarch": machine.uarch.name,
            "virtual": machine.virtual,
            "evidence": not machine.virtual,
            "alarms": alarm_rate(machine),
            **links,
            "cells": map(noise_row, rows),
        }
        return self.told(MachineNoiseOut(answer))


class MachineQuestionListView(PublicMixin, generics.ListAPIView[MachineQuestion]):
    queryset = MachineQuestion.objects.select_related("machine__uarch")
    serializer_class = MachineQuestionOut
    filterset_class = QuestionFilter

    @describe("machine_question_list", MachineQuestionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)
