"""Builds and their artifacts."""

from typing import Any

from django.urls import reverse
from django_filters import rest_framework as filters
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    NameFilter,
    ShaFilter,
    SinceFilter,
    UntilFilter,
    WordFilter,
)
from server.api.formats import PlainRows
from server.api.public import PublicMixin, RevisionOut, describe
from server.builds.models import Artifact, Build, BuildState, KernelConfig, Toolchain
from server.sources.models import Tree


class ConfigOut(serializers.ModelSerializer[KernelConfig]):
    layout_of = serializers.CharField(source="layout_of.name", default=None, allow_null=True)

    class Meta:
        model = KernelConfig
        list_serializer_class = PlainRows
        fields = ["name", "arch", "base", "fragments", "fragment", "layout_of"]


class ArtifactOut(serializers.ModelSerializer[Artifact]):
    path = serializers.SerializerMethodField(help_text="Where the pages give the file; null once it was removed.")

    class Meta:
        model = Artifact
        list_serializer_class = PlainRows
        fields = ["kind", "sha256", "size", "path", "removed_at", "removal"]

    def get_path(self, row: Artifact) -> str | None:
        return None if row.removed_at else reverse("artifact", args=[row.build_id, row.kind])


class BuildBriefOut(serializers.ModelSerializer[Build]):
    revision = RevisionOut()
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")

    class Meta:
        model = Build
        list_serializer_class = PlainRows
        fields = [
            "id",
            "revision",
            "config",
            "toolchain",
            "arch",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "created_at",
            "trace",
            "given_up",
            "build_id",
            "text_hash",
            "kernel_hash",
            "seconds",
        ]


class BuildOut(BuildBriefOut):
    # The whole configuration here, its name in lists.
    config = ConfigOut()  # type: ignore[assignment]
    artifacts = ArtifactOut(many=True)
    log_tail = serializers.CharField(help_text="The end of the log; all of it is an artifact.")

    class Meta(BuildBriefOut.Meta):
        fields = [
            *BuildBriefOut.Meta.fields,
            "compiler_version",
            "used_at",
            "first_error",
            "log_tail",
            "artifacts",
        ]


def _arches() -> set[str]:
    return set(KernelConfig.objects.order_by().values_list("arch", flat=True))


class BuildFilter(Filters):
    state = filters.ChoiceFilter(choices=BuildState.choices)
    tree = NameFilter(named=Tree, path="revision__tree")
    sha = ShaFilter(field_name="revision__sha", label="the commit, from 7 digits on")
    config = NameFilter(named=KernelConfig, path="config")
    toolchain = NameFilter(named=Toolchain, path="toolchain")
    arch = WordFilter(what="architecture", known=_arches)
    build_id = filters.CharFilter()
    text_hash = filters.CharFilter()
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Build
        fields: tuple[str, ...] = ()


_PARTS = ("revision__tree", "config", "toolchain")


class BuildListView(PublicMixin, generics.ListAPIView[Build]):
    keeps = True
    queryset = Build.objects.select_related(*_PARTS).defer("log_tail", "first_error", "config__fragment")
    serializer_class = BuildBriefOut
    filterset_class = BuildFilter

    @describe("build_list", BuildBriefOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class BuildView(PublicMixin, generics.RetrieveAPIView[Build]):
    queryset = (
        Build.objects.select_related(*_PARTS, "config__layout_of")
        .defer("config__layout_of__fragment")
        .prefetch_related("artifacts")
    )
    serializer_class = BuildOut

    @describe("build_detail", BuildOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)
