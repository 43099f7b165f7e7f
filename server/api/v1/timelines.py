"""Timelines of branches."""

from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.detection_filters import TimelineFilter
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.timelines import TimelineDetailOut, TimelineOut
from server.detection.models import Timeline

_NAMES = ("branch__tree", "reference", "machine__uarch", "case__benchmark", "metric", "core_type")
_MOST_POINTS = 1000


class TimelineListView(PublicMixin, generics.ListAPIView[Timeline]):
    queryset = Timeline.objects.select_related(*_NAMES).defer("watch").order_by("id")
    serializer_class = TimelineOut
    filterset_class = TimelineFilter

    @describe("timeline_list", TimelineOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class TimelineView(PublicMixin, generics.GenericAPIView[Timeline]):
    serializer_class = TimelineDetailOut

    @describe("timeline_detail", TimelineDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        timeline = get_object_or_404(Timeline.objects.select_related(*_NAMES).defer("watch"), pk=pk)
        newest = timeline.points.select_related("head__revision", "comparison").order_by("-place")[:_MOST_POINTS]
        return Response(TimelineDetailOut(timeline, context={"points": list(newest)[::-1]}).data)
