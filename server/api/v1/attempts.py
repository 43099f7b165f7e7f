"""How work gets to hosts: attempts, power cycles, and the queue."""

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from django_filters.utils import translate_validation
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.filters import (
    Filters,
    IdFilter,
    NameFilter,
    SinceFilter,
    UntilFilter,
    WordFilter,
    YesOrNoFilter,
)
from server.api.formats import PlainRows, Rows
from server.api.public import PublicMixin, describe
from server.lab.models import Attempt, AttemptState, Builder, Machine, PowerCycle, PowerCycleState
from server.lab.port import adapter_names, runs_of
from server.reports.progress import queue
from server.sources.models import Tree


class RunOut(serializers.Serializer[Any]):
    """An attempt as a controller sees it."""

    job = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="Of the build in its job.")
    node = serializers.CharField(help_text="Where it was built on, or has to be.")
    why = serializers.CharField(help_text="Why it waits, in the controller's words.")
    stuck = serializers.BooleanField()
    result = serializers.CharField(help_text="SUCCESS, FAILURE, ABORTED ...")
    posted_at = serializers.DateTimeField(allow_null=True)
    seen_at = serializers.DateTimeField(allow_null=True, help_text="When it was last seen in queue or builds.")


class AttemptOut(serializers.ModelSerializer[Attempt]):
    """Without its agent's log and the name that its host gives itself, which are the lab's own (decision 0025)."""

    builder = serializers.CharField(source="builder.name", default=None, allow_null=True)
    machine = serializers.CharField(source="machine.name", default=None, allow_null=True)
    run = serializers.SerializerMethodField(help_text="Null where no controller starts agents.")

    class Meta:
        model = Attempt
        list_serializer_class = PlainRows
        fields = [
            "key",
            "build",
            "session",
            "power_cycle",
            "builder",
            "machine",
            "adapter",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "created_at",
            "arrived_at",
            "lease_until",
            "deadline_at",
            "progress",
            "trace",
            "posts",
            "run",
        ]

    @extend_schema_field(RunOut(allow_null=True))
    def get_run(self, row: Attempt) -> Any:
        run = self.context["runs"].get(row.pk)
        return RunOut(run).data if run else None


class PowerCycleOut(serializers.ModelSerializer[PowerCycle]):
    machine = serializers.CharField(source="machine.name")

    class Meta:
        model = PowerCycle
        list_serializer_class = PlainRows
        fields = ["id", "machine", "state", "reason", "reason_code", "state_since", "created_at", "trace"]


class QueueRowOut(serializers.Serializer[Any]):
    place = serializers.IntegerField(
        help_text="From 1: of a build among all builds, of a session among those for its machine."
    )
    kind = serializers.ChoiceField(choices=["build", "session", "power-cycle"])
    id = serializers.IntegerField()
    title = serializers.CharField()
    series = serializers.IntegerField(source="series_id", allow_null=True)
    tree = serializers.CharField(help_text="Empty where no tree asked for it.")
    machine = serializers.CharField(help_text="Empty for a build.")
    since = serializers.DateTimeField()
    deadline = serializers.DateTimeField(allow_null=True)
    why = serializers.CharField(help_text="Why it waits.")


class QueueOut(serializers.Serializer[Any]):
    """What waits for builders and machines, in the order in which it will go."""

    total = serializers.IntegerField(help_text="How many wait; `rows` has the first of them.")
    rows = QueueRowOut(many=True)


class AttemptFilter(Filters):
    state = filters.ChoiceFilter(choices=AttemptState.choices)
    active = YesOrNoFilter(method="by_active", label="whether it is not over")
    build = IdFilter(field_name="build_id")
    session = IdFilter(field_name="session_id")
    power_cycle = IdFilter(field_name="power_cycle_id")
    machine = NameFilter(named=Machine, path="machine")
    builder = NameFilter(named=Builder, path="builder")
    adapter = WordFilter(what="adapter", known=adapter_names)
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Attempt
        fields: tuple[str, ...] = ()

    def by_active(self, queryset: QuerySet[Attempt], _name: str, value: bool) -> QuerySet[Attempt]:  # noqa: FBT001 (django-filter calls it so)
        return queryset.filter(state__in=Attempt.ACTIVE) if value else queryset.exclude(state__in=Attempt.ACTIVE)


class PowerCycleFilter(Filters):
    state = filters.ChoiceFilter(choices=PowerCycleState.choices)
    machine = NameFilter(named=Machine, path="machine")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = PowerCycle
        fields: tuple[str, ...] = ()


class _AttemptsMixin(PublicMixin, generics.GenericAPIView[Attempt]):
    """Attempts without their logs, which no answer shows, and with their runs."""

    queryset = Attempt.objects.select_related("builder", "machine").defer("log")
    serializer_class = AttemptOut

    def get_serializer(self, *given: Any, **more: Any) -> Any:
        rows = [row for one in given for row in (one if more.get("many") else [one])]
        runs = runs_of({row.pk: row.adapter for row in rows}) if self.wants("run") else {}
        context = {**self.get_serializer_context(), "runs": runs}
        return self.narrowed(AttemptOut(*given, context=context, **more))


class AttemptListView(_AttemptsMixin, generics.ListAPIView[Attempt]):
    keeps = True
    filterset_class = AttemptFilter

    @describe("attempt_list", AttemptOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class AttemptView(_AttemptsMixin, generics.RetrieveAPIView[Attempt]):
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


class QueueFilter(Filters):
    """Of names alone: what waits is no table."""

    tree = NameFilter(named=Tree, path="pk")
    machine = NameFilter(named=Machine, path="pk")

    class Meta:
        model = Tree
        fields: tuple[str, ...] = ()


_OF_QUEUE = [
    OpenApiParameter("tree", str, description="What waits for this tree."),
    OpenApiParameter("machine", str, description="What waits for this machine; no build does."),
]


class QueueView(PublicMixin, APIView):
    takes = ("tree", "machine")
    rows = Rows("rows", QueueRowOut)

    @describe("queue", QueueOut, parameters=_OF_QUEUE)
    def get(self, request: Request) -> Response:
        """What waits, in the order in which it will go, and why."""
        asked = QueueFilter(request.query_params, Tree.objects.all())
        if not asked.is_valid():
            raise translate_validation(asked.errors)
        named = {name: request.query_params.get(name, "").strip() for name in self.takes}
        return self.told(QueueOut(queue(named["tree"], named["machine"])))
