"""Machines and builders."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.filters import BuilderFilter, MachineFilter
from server.api.v1.public import PublicMixin, VirtualOut, describe
from server.core.models import Transition
from server.lab.hosts.probes import MachineKind, standing
from server.lab.models import Builder, CoreType, Machine

_HOST = [
    "enabled",
    "state",
    "state_reason",
    "state_since",
    "health",
    "health_reason",
    "health_since",
    "capabilities",
    "last_seen_at",
]
_CHANGES = 50


class HealthChangeOut(serializers.ModelSerializer[Transition]):
    actor = serializers.CharField(help_text="The person who did it; empty: the service itself.")

    class Meta:
        model = Transition
        fields = ["at", "before", "after", "reason", "actor"]


class HealthLogOut(serializers.Serializer[Any]):
    health_log = serializers.SerializerMethodField(help_text="The last changes of health, newest first.")

    @extend_schema_field(HealthChangeOut(many=True))
    def get_health_log(self, host: Machine | Builder) -> Any:
        subject = f"{host._meta.model_name}-health"
        rows = Transition.objects.filter(subject=subject, subject_id=host.pk).order_by("-id")[:_CHANGES]
        return HealthChangeOut(rows, many=True).data


class MachineOut(VirtualOut, serializers.ModelSerializer[Machine]):
    uarch = serializers.CharField(source="uarch.name")
    arch = serializers.CharField(source="uarch.arch")

    class Meta:
        model = Machine
        fields = [
            "name", "uarch", "arch", "virtual", "evidence", "clock", *_HOST, "health_hold", "boot_driver",
            "boots_per_side",
        ]  # fmt: skip


class CoreTypeOut(serializers.ModelSerializer[CoreType]):
    class Meta:
        model = CoreType
        fields = ["name", "cpus"]


class KindOut(serializers.Serializer[Any]):
    """What a machine is taken for. An unknown one is treated as virtual until a person says that it is physical."""

    kind = serializers.ChoiceField(choices=[kind.value for kind in MachineKind])
    doubts = serializers.ListField(child=serializers.CharField(), help_text="Why probes do not call it physical.")
    by = serializers.CharField(help_text="Who said that it is physical; empty: nobody.")
    at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()


class MachineDetailOut(HealthLogOut, MachineOut):
    standing = serializers.SerializerMethodField()
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")
    core_types = CoreTypeOut(many=True)
    facts = serializers.JSONField(
        source="facts.document", default=dict, help_text="What the probe of the last boot saw."
    )

    class Meta(MachineOut.Meta):
        fields = [
            *MachineOut.Meta.fields,
            "config",
            "toolchain",
            "health_build",
            "core_types",
            "facts",
            "health_log",
            "standing",
        ]

    @extend_schema_field(KindOut)
    def get_standing(self, machine: Machine) -> Any:
        return KindOut(standing(machine)).data


class BuilderOut(serializers.ModelSerializer[Builder]):
    toolchains = serializers.ListField(child=serializers.CharField(), help_text="Empty: all of the site's.")

    class Meta:
        model = Builder
        fields = ["name", *_HOST, "arches", "toolchains", "capacity"]


class BuilderDetailOut(HealthLogOut, BuilderOut):
    class Meta(BuilderOut.Meta):
        fields = [*BuilderOut.Meta.fields, "health_log"]


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
