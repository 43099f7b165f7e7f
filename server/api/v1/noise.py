"""What machines show by themselves: noise between equal kernels, and questions for people."""

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
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
from server.api.v1.benchmarks import ParametersFilter
from server.detection.models import MachineQuestion, NoiseProfile
from server.detection.models.timeline import QuestionState
from server.detection.noise.profiles import alarm_rate, foreseen_row, noise_profiles, noise_row
from server.lab.models import Machine
from server.results.models import Benchmark, Case, Metric


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


class ForeseenOut(serializers.Serializer[Any]):
    """What so many boots a side would show of one cell; effects are fractions."""

    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    core_type = serializers.CharField()
    comparisons = serializers.IntegerField(help_text="Of equal kernels, from which it is known.")
    boot_sd = serializers.FloatField(allow_null=True, help_text="Standard deviation between boots, on logarithms.")
    min_effect = serializers.FloatField(help_text="Changes below this get no verdict, however many boots there are.")
    mde = serializers.FloatField(
        allow_null=True, help_text="The smallest change that would be seen, with a probability of 80 %."
    )
    statement = serializers.CharField(help_text="What is not known of the cell; empty: nothing is missing.")
    last_at = serializers.DateTimeField()


class WhatIfOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField(help_text="Virtual machines are none.")
    boots = serializers.IntegerField(help_text="A side.")
    statement = serializers.CharField(help_text="What holds of all; or that nothing is known.")
    next = serializers.URLField(allow_null=True, help_text="The next page of `cells`.")
    previous = serializers.URLField(allow_null=True)
    cells = ForeseenOut(many=True)


# Two are the fewest that have a spread.
_FEWEST, _MOST = 2, 1000


@extend_schema_field({"type": "integer", "minimum": _FEWEST, "maximum": _MOST})
class BootsFilter(filters.NumberFilter):  # type: ignore[misc]  # django-filter has no types
    """A number of boots, by which each row is read and none is left out."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=_FEWEST, max_value=_MOST, **kwargs)

    def get_max_validator(self) -> None:
        """That of the field says it."""

    def filter(self, qs: QuerySet[Any], value: int | None) -> QuerySet[Any]:  # noqa: ARG002 (the library calls it so)
        return qs


class WhatIfFilter(Filters):
    machine = NameFilter(named=Machine, path="machine", required=True)
    boots = BootsFilter(required=True, label="boots of each kernel")
    benchmark = NameFilter(named=Benchmark, path="case__benchmark")
    case = NameFilter(named=Case, path="case")
    metric = NameFilter(named=Metric, path="metric")
    parameter = ParametersFilter(path="case")

    class Meta:
        model = NoiseProfile
        fields: tuple[str, ...] = ()


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
    keeps = True
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


_HOLDS = (
    "By what the machine showed between equal kernels, and before the adjustment for many cells. A cell without such a "
    "profile is not among these."
)
_NOTHING = "Nothing is known: no comparison of equal kernels on this machine tells of such a cell."


class WhatIfView(PublicMixin, generics.GenericAPIView[NoiseProfile]):
    queryset = NoiseProfile.objects.select_related("case__benchmark", "metric", "core_type")
    serializer_class = WhatIfOut
    filterset_class = WhatIfFilter
    pagination_class = CellPages
    takes = PAGING
    rows = Rows("cells", ForeseenOut, ("machine", "uarch", "virtual", "evidence", "boots"))

    @describe("what_if", WhatIfOut, parameters=paging(CellPages))
    def get(self, request: Request) -> Response:
        """The smallest change that so many boots a side would show on a machine, cell by cell."""
        rows, links = page_of(self, request, self.filter_queryset(self.get_queryset()))
        machine = Machine.objects.select_related("uarch").get(name=request.query_params["machine"].strip())
        boots = int(request.query_params["boots"])
        answer = {
            "machine": machine.name,
            "uarch": machine.uarch.name,
            "virtual": machine.virtual,
            "evidence": not machine.virtual,
            "boots": boots,
            "statement": _HOLDS if rows or links["previous"] else _NOTHING,
            **links,
            "cells": [foreseen_row(row, boots) for row in rows],
        }
        return self.told(WhatIfOut(answer))


class MachineQuestionListView(PublicMixin, generics.ListAPIView[MachineQuestion]):
    queryset = MachineQuestion.objects.select_related("machine__uarch")
    serializer_class = MachineQuestionOut
    filterset_class = QuestionFilter

    @describe("machine_question_list", MachineQuestionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)
