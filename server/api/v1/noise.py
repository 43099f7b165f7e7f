"""What machines show by themselves: noise between equal kernels, and questions for people."""

from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.detection_filters import QuestionFilter
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.machines_noise import MachineNoiseOut, MachineQuestionOut
from server.detection.models import MachineQuestion
from server.detection.noise.selectors import alarm_rate, noise_of_machine
from server.lab.models import Machine


class MachineNoiseView(PublicMixin, generics.GenericAPIView[Machine]):
    serializer_class = MachineNoiseOut

    @describe("machine_noise", MachineNoiseOut)
    def get(self, _request: Request, name: str) -> Response:
        machine = get_object_or_404(Machine.objects.select_related("uarch"), name=name)
        answer = {
            "machine": machine.name,
            "uarch": machine.uarch.name,
            "virtual": machine.virtual,
            "evidence": not machine.virtual,
            "alarms": alarm_rate(machine),
            "cells": noise_of_machine(machine),
        }
        return Response(MachineNoiseOut(answer).data)


class MachineQuestionListView(PublicMixin, generics.ListAPIView[MachineQuestion]):
    queryset = MachineQuestion.objects.select_related("machine__uarch")
    serializer_class = MachineQuestionOut
    filterset_class = QuestionFilter

    @describe("machine_question_list", MachineQuestionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)
