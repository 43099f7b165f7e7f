"""Machines, sessions with their boots and samples, and builds."""

from typing import Any

from rest_framework import serializers

from server.api.v1.serializers.common import RevisionOut, SessionBriefOut, VirtualOut
from server.builds.models import Artifact, Build, KernelConfig
from server.lab.models import Boot, CoreType, Machine, Session


class MachineOut(VirtualOut, serializers.ModelSerializer[Machine]):
    uarch = serializers.CharField(source="uarch.name")
    arch = serializers.CharField(source="uarch.arch")

    class Meta:
        model = Machine
        fields = [
            "name",
            "uarch",
            "arch",
            "virtual",
            "evidence",
            "clock",
            "enabled",
            "health",
            "health_reason",
            "boot_driver",
            "boots_per_side",
            "last_seen_at",
        ]


class CoreTypeOut(serializers.ModelSerializer[CoreType]):
    class Meta:
        model = CoreType
        fields = ["name", "cpus"]


class MachineDetailOut(MachineOut):
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")
    core_types = CoreTypeOut(many=True)
    facts = serializers.JSONField(help_text="What the probe of the last boot saw.")

    class Meta(MachineOut.Meta):
        fields = [*MachineOut.Meta.fields, "config", "toolchain", "core_types", "facts"]


class BootOut(serializers.ModelSerializer[Boot]):
    outcome = serializers.CharField(source="reason", help_text="Why it is in this state.")
    notes = serializers.JSONField(help_text="Cases that gave no measurement, with the reason.")

    class Meta:
        model = Boot
        fields = [
            "position",
            "arm",
            "state",
            "outcome",
            "retries",
            "boot_id",
            "build_id",
            "started_at",
            "ended_at",
            "notes",
        ]


class SessionOut(SessionBriefOut):
    base_build = serializers.IntegerField(source="base_build_id")
    patched_build = serializers.IntegerField(source="patched_build_id")
    boots = BootOut(many=True)

    class Meta(SessionBriefOut.Meta):
        model = Session
        fields = [*SessionBriefOut.Meta.fields, "base_build", "patched_build", "boots"]


class ColumnOut(serializers.Serializer[Any]):
    """One (case, metric, core type). The four arrays have one entry for each boot that gave values."""

    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    unit = serializers.CharField()
    better = serializers.CharField()
    core_type = serializers.CharField()
    boots = serializers.ListField(child=serializers.IntegerField(), help_text="positions")
    arms = serializers.ListField(child=serializers.CharField())
    warmup = serializers.ListField(
        child=serializers.IntegerField(), help_text="How many of the first values are not judged."
    )
    values = serializers.ListField(child=serializers.ListField(child=serializers.FloatField()))


class SamplesOut(serializers.Serializer[Any]):
    """Every value of a session, by column."""

    session = serializers.IntegerField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    clock = serializers.CharField()
    columns = ColumnOut(many=True)


class ConfigOut(serializers.ModelSerializer[KernelConfig]):
    class Meta:
        model = KernelConfig
        fields = ["name", "arch", "base", "fragment"]


class ArtifactOut(serializers.ModelSerializer[Artifact]):
    class Meta:
        model = Artifact
        fields = ["kind", "sha256", "size"]


class BuildOut(serializers.ModelSerializer[Build]):
    revision = RevisionOut()
    config = ConfigOut()
    toolchain = serializers.CharField(source="toolchain.name")
    artifacts = ArtifactOut(many=True)

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
            "build_id",
            "compiler_version",
            "seconds",
            "log_tail",
            "artifacts",
        ]
