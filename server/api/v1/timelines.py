"""Timelines of branches and their change points."""

from typing import Any

from django.db.models import F, Max, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    MOST_KNOWN,
    Filters,
    NameFilter,
)
from server.api.formats import PlainRows, Rows
from server.api.public import PublicMixin, describe
from server.api.v1.benchmarks import ParametersFilter
from server.detection.models import ChangePoint, Comparison, Timeline, TimelinePoint
from server.lab.models import CoreType, Machine, Microarchitecture
from server.results.models import Benchmark, Case, Metric
from server.sources.models import Branch, Tree


class TimelineOut(serializers.ModelSerializer[Timeline]):
    tree = serializers.CharField(source="branch.tree.name")
    branch = serializers.CharField(source="branch.name")
    reference = serializers.CharField(source="reference.sha")
    machine = serializers.CharField(source="machine.name")
    uarch = serializers.CharField(source="machine.uarch.name")
    virtual = serializers.BooleanField(source="machine.virtual")
    evidence = serializers.SerializerMethodField(help_text="Virtual machines are none.")
    benchmark = serializers.CharField(source="case.benchmark.name")
    case = serializers.CharField(source="case.name")
    metric = serializers.CharField(source="metric.name")
    better = serializers.CharField(source="metric.better")
    core_type = serializers.CharField(source="core_type.name")

    class Meta:
        model = Timeline
        list_serializer_class = PlainRows
        fields = [
            "id",
            "tree",
            "branch",
            "reference",
            "machine",
            "uarch",
            "virtual",
            "evidence",
            "benchmark",
            "case",
            "metric",
            "better",
            "core_type",
            "points_seen",
        ]

    def get_evidence(self, timeline: Timeline) -> bool:
        return not timeline.machine.virtual


class _AsRead(serializers.ListSerializer[Any]):
    """Of dictionaries that hold what is told: a thousand of them through a form take most of the time."""

    def to_representation(self, data: Any) -> list[Any]:
        point: Any = self.child
        names = tuple(point.fields)
        return [{name: row[name] for name in names} for row in data]


class TimelinePointOut(serializers.ModelSerializer[TimelinePoint]):
    sha = serializers.CharField(source="head.revision.sha")
    committed_at = serializers.DateTimeField(source="head.revision.committed_at")
    session = serializers.IntegerField(source="comparison.session_id")

    class Meta:
        model = TimelinePoint
        fields = ["place", "sha", "committed_at", "ratio", "ratio_low", "ratio_high", "session"]
        list_serializer_class = _AsRead


class ChangePointOut(serializers.ModelSerializer[ChangePoint]):
    sha = serializers.SerializerMethodField(help_text="The first head of the new level.")
    before_sha = serializers.SerializerMethodField(help_text="The last head of the old level.")

    class Meta:
        model = ChangePoint
        fields = ["place", "sha", "before_place", "before_sha", "effect", "score", "state", "finding", "published_at"]

    def get_sha(self, point: ChangePoint) -> str | None:
        return self._sha_at(point.place)

    def get_before_sha(self, point: ChangePoint) -> str | None:
        return self._sha_at(point.before_place)

    def _sha_at(self, place: int) -> str | None:
        shas: dict[int, str] = self.context["shas"]
        return shas.get(place)


class TimelineDetailOut(TimelineOut):
    change_points = ChangePointOut(many=True)
    # Read with `last_points`.
    points = TimelinePointOut(source="last_points", many=True, help_text="The last 1000, oldest first.")

    class Meta(TimelineOut.Meta):
        fields = [*TimelineOut.Meta.fields, "change_points", "points"]


class TimelineFilter(Filters):
    tree = NameFilter(named=Tree, path="branch__tree")
    branch = NameFilter(named=Branch, path="branch")
    machine = NameFilter(named=Machine, path="machine")
    uarch = NameFilter(named=Microarchitecture, path="machine__uarch")
    benchmark = NameFilter(named=Benchmark, path="case__benchmark")
    case = NameFilter(named=Case, path="case")
    metric = NameFilter(named=Metric, path="metric")
    core_type = NameFilter(named=CoreType, path="core_type")
    parameter = ParametersFilter(path="case")

    class Meta:
        model = Timeline
        fields: tuple[str, ...] = ()


_NAMES = ("branch__tree", "reference", "machine__uarch", "case__benchmark", "metric", "core_type")
_MOST_POINTS = 1000
# What TimelinePointOut says of a point; its session, by its comparison.
_OF_POINT = {
    "place": "place",
    "sha": "head__revision__sha",
    "committed_at": "head__revision__committed_at",
    "ratio": "ratio",
    "ratio_low": "ratio_low",
    "ratio_high": "ratio_high",
    "session": "comparison",
}


class TimelineListView(PublicMixin, generics.ListAPIView[Timeline]):
    keeps = True
    queryset = Timeline.objects.select_related(*_NAMES).defer("watch").order_by("id")
    serializer_class = TimelineOut
    filterset_class = TimelineFilter

    @describe("timeline_list", TimelineOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class _WithPoints(PublicMixin, generics.GenericAPIView[Timeline]):
    keeps = True
    queryset = Timeline.objects.all()
    serializer_class = TimelineDetailOut
    rows = Rows("points", TimelinePointOut, ("virtual", "evidence"))

    def _answer(self, pk: int) -> Response:
        timeline = get_object_or_404(Timeline.objects.select_related(*_NAMES).defer("watch"), pk=pk)
        steps = timeline.change_points.values_list("place", "before_place")
        stepped = timeline.points.filter(place__in={place for pair in steps for place in pair})
        # An attribute of this answer alone, which no model has.
        timeline.last_points = _newest_points(timeline)  # type: ignore[attr-defined]
        shas = dict(stepped.order_by().values_list("place", "head__revision__sha"))
        return self.told(TimelineDetailOut(timeline, context={"shas": shas}))


class TimelineView(_WithPoints):
    @describe("timeline_detail", TimelineDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        return self._answer(pk)


class CaseTimelineView(_WithPoints):
    filterset_class = TimelineFilter

    @describe("timeline", TimelineDetailOut)
    def get(self, _request: Request) -> Response:
        """The one timeline of which all that is asked for holds; where several are left, what tells them apart is an
        error. Of a cell that was measured against several references it is the newest.
        """
        left = self.filter_queryset(Timeline.objects.order_by())
        # References of one cell are few; more rows than that are several cells.
        some = list(left.values_list(*_TOLD_APART.values())[:_MOST_LEFT])
        if not some:
            raise Http404
        if len(set(some)) > 1 or len(some) == _MOST_LEFT:
            raise serializers.ValidationError(_apart(left))
        # The one that goes furthest along the branch: the reference may have been another one in between.
        newest = left.annotate(last=Max("points__place")).order_by(F("last").desc(nulls_last=True), "-pk")
        return self._answer(newest.values_list("pk", flat=True)[0])


# What names one timeline, but for the reference.
_TOLD_APART = {
    "tree": "branch__tree__name",
    "branch": "branch__name",
    "machine": "machine__name",
    "benchmark": "case__benchmark__name",
    "case": "case__name",
    "metric": "metric__name",
    "core_type": "core_type__name",
}
# Of timelines among which a question does not decide.
_MOST_LEFT = 200


def _apart(left: QuerySet[Timeline]) -> dict[str, list[str]]:
    """Each parameter by which these timelines differ, with the names to choose from."""
    told = {}
    for name, path in _TOLD_APART.items():
        names = list(left.order_by(path).values_list(path, flat=True).distinct()[: MOST_KNOWN + 1])
        if len(names) > 1:
            more = ", ..." if len(names) > MOST_KNOWN else ""
            told[name] = [f"Several are left. Say which: {', '.join(names[:MOST_KNOWN])}{more}."]
    return told


def _newest_points(timeline: Timeline) -> list[dict[str, Any]]:
    """Oldest first. Two queries: joined, all comparisons there are may be read for the sessions of these."""
    rows = timeline.points.order_by("-place").values_list(*_OF_POINT.values())[:_MOST_POINTS]
    points = [dict(zip(_OF_POINT, values, strict=True)) for values in reversed(rows)]
    of_comparison = Comparison.objects.filter(pk__in=[point["session"] for point in points]).order_by()
    sessions = dict(of_comparison.values_list("pk", "session"))
    told = serializers.DateTimeField().to_representation
    return [
        {**point, "committed_at": told(point["committed_at"]), "session": sessions[point["session"]]}
        for point in points
    ]
