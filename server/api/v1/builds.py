"""Kernels that were wanted, and what became of them."""

from typing import Any

from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.lab_filters import BuildFilter
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.builds import BuildBriefOut, BuildOut
from server.builds.models import Build

_PARTS = ("revision__tree", "config__layout_of", "toolchain")


class BuildListView(PublicMixin, generics.ListAPIView[Build]):
    queryset = Build.objects.select_related(*_PARTS).defer("log_tail")
    serializer_class = BuildBriefOut
    filterset_class = BuildFilter

    @describe("build_list", BuildBriefOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class BuildView(PublicMixin, generics.RetrieveAPIView[Build]):
    queryset = Build.objects.select_related(*_PARTS).prefetch_related("artifacts")
    serializer_class = BuildOut

    @describe("build_detail", BuildOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)
