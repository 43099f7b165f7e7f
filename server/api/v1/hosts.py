"""Machines and builders."""

from typing import Any

from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.lab_filters import BuilderFilter, MachineFilter
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.hosts import BuilderDetailOut, BuilderOut, MachineDetailOut, MachineOut
from server.lab.models import Builder, Machine


class MachineListView(PublicMixin, generics.ListAPIView[Machine]):
    queryset = Machine.objects.select_related("uarch")
    serializer_class = MachineOut
    filterset_class = MachineFilter

    @describe("machine_list", MachineOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MachineView(PublicMixin, generics.RetrieveAPIView[Machine]):
    queryset = (
        Machine.objects.select_related("uarch", "config", "toolchain", "facts")
        .defer("config__fragment")
        .prefetch_related("core_types")
    )
    serializer_class = MachineDetailOut
    lookup_field = "name"

    @describe("machine_detail", MachineDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class BuilderListView(PublicMixin, generics.ListAPIView[Builder]):
    queryset = Builder.objects.all()
    serializer_class = BuilderOut
    filterset_class = BuilderFilter

    @describe("builder_list", BuilderOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class BuilderView(PublicMixin, generics.RetrieveAPIView[Builder]):
    queryset = Builder.objects.all()
    serializer_class = BuilderDetailOut
    lookup_field = "name"

    @describe("builder_detail", BuilderDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)
