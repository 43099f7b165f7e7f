"""What machines show by themselves: noise between equal kernels, and questions for people."""

from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.pagination import CellPages
from server.api.v1.detection_filters import QuestionFilter
from server.api.v1.reading import PublicMixin, describe, page_of
from server.api.v1.serializers.machines_noise import MachineNoiseOut, MachineQuestionOut
from server.detection.models import MachineQuestion
from server.detection.noise.selectors import alarm_rate, noise_profiles, noise_row
from server.lab.models import Machine


class MachineNoiseView(PublicMixin, generics.GenericAPIView[Machine]):
    serializer_class = MachineNoiseOut
    pagination_class = CellPages

    @describe("machine_noise", MachineNoiseOut)
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
        return Response(MachineNoiseOut(answer).data)


class MachineQuestionListView(PublicMixin, generics.ListAPIView[MachineQuestion]):
    queryset = MachineQuestion.objects.select_related("machine__uarch")
    serializer_class = MachineQuestionOut
    filterset_class = QuestionFilter

    @describe("machine_question_list", MachineQuestionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)
