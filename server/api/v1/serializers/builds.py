"""Kernels: what they are made of, and the files that came out."""

from django.urls import reverse
from rest_framework import serializers

from server.api.v1.serializers.common import RevisionOut
from server.builds.models import Artifact, Build, KernelConfig


class ConfigOut(serializers.ModelSerializer[KernelConfig]):
    layout_of = serializers.CharField(source="layout_of.name", default=None, allow_null=True)

    class Meta:
        model = KernelConfig
        fields = ["name", "arch", "base", "fragments", "fragment", "layout_of"]


class ArtifactOut(serializers.ModelSerializer[Artifact]):
    path = serializers.SerializerMethodField(help_text="Where the pages give the file; null once it was removed.")

    class Meta:
        model = Artifact
        fields = ["kind", "sha256", "size", "path", "removed_at", "removal"]

    def get_path(self, row: Artifact) -> str | None:
        return None if row.removed_at else reverse("artifact", args=[row.build_id, row.kind])


class BuildBriefOut(serializers.ModelSerializer[Build]):
    revision = RevisionOut()
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")

    class Meta:
        model = Build
        fields = [
            "id",
            "revision",
            "config",
            "toolchain",
            "arch",
            "state",
            "reason",
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
