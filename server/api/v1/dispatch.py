"""How work gets to hosts: attempts, power cycles, and the queue."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.v1.lab_filters import AttemptFilter, PowerCycleFilter
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.attempts import AttemptOut, PowerCycleOut, QueueOut
from server.lab.models import Attempt, PowerCycle
from server.reports.queue import queue

_PARTS = ("builder", "machine", "jenkins_run")
# The lab's own, which no answer shows.
_UNTOLD = ("log", "jenkins_run__console")


class AttemptListView(PublicMixin, generics.ListAPIView[Attempt]):
    queryset = Attempt.objects.select_related(*_PARTS).defer(*_UNTOLD)
    serializer_class = AttemptOut
    filterset_class = AttemptFilter

    @describe("attempt_list", AttemptOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class AttemptView(PublicMixin, generics.RetrieveAPIView[Attempt]):
    queryset = Attempt.objects.select_related(*_PARTS).defer(*_UNTOLD)
    serializer_class = AttemptOut
    lookup_field = "key"

    @describe("attempt_detail", AttemptOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class PowerCycleListView(PublicMixin, generics.ListAPIView[PowerCycle]):
    queryset = PowerCycle.objects.select_related("machine")
    serializer_class = PowerCycleOut
    filterset_class = PowerCycleFilter

    @describe("power_cycle_list", PowerCycleOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class QueueView(PublicMixin, APIView):
    @describe("queue", QueueOut, parameters=[OpenApiParameter("tree", str, description="What waits for this tree.")])
    def get(self, request: Request) -> Response:
        """What waits, in the order in which it will go, and why."""
        return Response(QueueOut(queue(request.query_params.get("tree", "").replace("\0", ""))).data)
