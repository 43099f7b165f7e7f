"""Machines and builders, and how they come into the lab."""

from dataclasses import asdict
from typing import Any

from django.db.models import Count, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.filters import (
    Filters,
    NameFilter,
    WordFilter,
    YesOrNoFilter,
)
from server.api.parsers import BodyForm
from server.api.public import ProblemOut, PublicMixin, VirtualOut, describe
from server.core import clock
from server.core.access.tries import client_network
from server.core.models import Transition
from server.lab.hosts.enrolments import enrol
from server.lab.hosts.probes import MachineKind, standing
from server.lab.models import Builder, CoreType, Host, Machine, Microarchitecture
from server.lab.port import dispatcher

_REFUSALS = {(status, "application/problem+json"): ProblemOut for status in (400, 404, 409, 413, 415, 429)}
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


class UarchOut(serializers.ModelSerializer[Microarchitecture]):
    """A kind of CPU: what verdicts speak about."""

    machines = serializers.IntegerField(source="machine_count", help_text="How many are of it.")

    class Meta:
        model = Microarchitecture
        fields = ["name", "title", "arch", "machines"]


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


def _capabilities() -> set[str]:
    hosts = (Machine.objects, Builder.objects)
    return {word for some in hosts for words in some.values_list("capabilities", flat=True) for word in words}


def _arches() -> set[str]:
    return set(Microarchitecture.objects.order_by().values_list("arch", flat=True))


def _built() -> set[str]:
    return {arch for arches in Builder.objects.values_list("arches", flat=True) for arch in arches}


class HostFilter(Filters):
    enabled = YesOrNoFilter()
    state = filters.ChoiceFilter(choices=Host.State.choices)
    health = filters.ChoiceFilter(choices=Host.Health.choices)
    capability = WordFilter(
        what="capability",
        known=_capabilities,
        field_name="capabilities",
        method="by_capability",
        label="one that it has",
    )

    def by_capability(
        self, queryset: "QuerySet[Machine] | QuerySet[Builder]", _name: str, value: str
    ) -> "QuerySet[Machine] | QuerySet[Builder]":
        return queryset.filter(capabilities__contains=[value])


class MachineFilter(HostFilter):
    uarch = NameFilter(named=Microarchitecture, path="uarch")
    virtual = YesOrNoFilter()

    class Meta:
        model = Machine
        fields: tuple[str, ...] = ()


class UarchFilter(Filters):
    arch = WordFilter(what="architecture", known=_arches)

    class Meta:
        model = Microarchitecture
        fields: tuple[str, ...] = ()


class BuilderFilter(HostFilter):
    arch = WordFilter(what="architecture", known=_built, method="by_arch", label="that it builds for")

    class Meta:
        model = Builder
        fields: tuple[str, ...] = ()

    def by_arch(self, queryset: QuerySet[Builder], _name: str, value: str) -> QuerySet[Builder]:
        return queryset.filter(arches__contains=[value])


class UarchListView(PublicMixin, generics.ListAPIView[Microarchitecture]):
    queryset = Microarchitecture.objects.annotate(machine_count=Count("machines"))
    serializer_class = UarchOut
    filterset_class = UarchFilter

    @describe("uarch_list", UarchOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


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


class ProbeIn(BodyForm):
    """What the agent's probe saw, in short: for the person who lets the host in."""

    uarch = serializers.CharField(max_length=60, allow_blank=True, default="")
    arch = serializers.CharField(max_length=20, allow_blank=True, default="")
    model_name = serializers.CharField(max_length=200, allow_blank=True, default="")
    cpus = serializers.IntegerField(min_value=0, max_value=1_000_000, default=0)
    memory_kb = serializers.IntegerField(min_value=0, max_value=2**50, allow_null=True, default=None)
    virtual = serializers.BooleanField(default=False)


class EnrolmentIn(BodyForm):
    code = serializers.CharField(max_length=60)
    version = serializers.CharField(max_length=60)
    host = serializers.CharField(max_length=200)
    facts = ProbeIn()


class EnrolmentOut(serializers.Serializer[Any]):
    scope = serializers.CharField()
    subject = serializers.CharField()
    token = serializers.CharField()
    pull = serializers.BooleanField(help_text="Whether the host is to ask for work itself.")
    accepted = serializers.BooleanField(help_text="False: a person looks at it before it is given work.")
    at = serializers.DateTimeField(help_text="The service's clock.")


class EnrolmentView(APIView):
    """A code that a person made for this host is exchanged for the host's token, once."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (JSONParser,)

    @extend_schema(request=EnrolmentIn, responses={200: EnrolmentOut, **_REFUSALS})
    def post(self, request: Request) -> Response:
        form = EnrolmentIn(data=request.data)
        form.is_valid(raise_exception=True)
        told, network = form.validated_data, client_network(request)
        pull = dispatcher().hosts_ask
        made = enrol(told["code"], host=told["host"], facts=told["facts"], network=network, pull=pull)
        return Response({**asdict(made), "at": clock.now()}, headers={"Cache-Control": "no-store"})
