"""What is measured: benchmarks, their cases with parameters, their metrics; and the values of a session, row by row."""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, Prefetch, Q, QuerySet
from django.http import StreamingHttpResponse
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.filters import Filters, IdFilter, NameFilter, YesOrNoFilter, unknown
from server.api.formats import FILES, PlainRows
from server.api.public import PAGING, PublicMixin, describe
from server.lab.models import Boot, Microarchitecture
from server.results.models import Benchmark, Case, Measurement, Metric
from server.results.samples import measurement_batches


class _Parameters(forms.Field):
    """Ids of the cases that have all these parameters."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[int] | None:
        wanted = dict(self._pair(str(one)) for one in value or () if str(one).strip())
        if not wanted:
            return None
        cases = list(Case.objects.exclude(parameters={}).order_by().values_list("pk", "parameters"))
        known: dict[str, set[str]] = defaultdict(set)
        for _, parameters in cases:
            for key, word in parameters.items():
                known[key].add(word)
        for key, word in wanted.items():
            if key not in known:
                raise unknown("parameter", key, sorted(known))
            if word not in known[key]:
                raise unknown(f"{key} of", word, sorted(known[key]))
        return [pk for pk, parameters in cases if wanted.items() <= parameters.items()]

    def _pair(self, text: str) -> tuple[str, str]:
        key, colon, word = text.strip().partition(":")
        if not (key and colon and word):
            raise ValidationError("Write a parameter of a case as KEY:VALUE.")
        return key, word


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class ParametersFilter(filters.Filter):  # type: ignore[misc]  # django-filter has no types
    """`size:4k`; given several times, all of them have to be. `path` is the reference to a case."""

    field_class = _Parameters
    repeats = True

    def __init__(self, *args: Any, path: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._path = path

    def filter(self, qs: QuerySet[Any], value: list[int] | None) -> QuerySet[Any]:
        return qs if value is None else qs.filter(self.condition(value))

    def condition(self, found: Sequence[int]) -> Q:
        return Q(**{f"{self._path}__in": found})


class BenchmarkOut(serializers.ModelSerializer[Benchmark]):
    class Meta:
        model = Benchmark
        list_serializer_class = PlainRows
        fields = ["name", "title", "version"]


class CaseOut(serializers.ModelSerializer[Case]):
    benchmark = serializers.CharField(source="benchmark.name")
    version = serializers.CharField(source="benchmark.version", help_text="SHA-256 over the benchmark's files.")
    parameters = serializers.DictField(child=serializers.CharField(), help_text="Names and values, both as texts.")

    class Meta:
        model = Case
        list_serializer_class = PlainRows
        fields = ["benchmark", "version", "name", "title", "parameters", "runs", "warmup", "timeout_seconds"]


class CaseRowOut(CaseOut):
    class Meta(CaseOut.Meta):
        fields = [*CaseOut.Meta.fields, "enabled"]


class MetricOut(serializers.ModelSerializer[Metric]):
    class Meta:
        model = Metric
        list_serializer_class = PlainRows
        fields = ["name", "title", "unit", "better", "resolution", "exact"]


class MetricRowOut(MetricOut):
    benchmark = serializers.CharField(source="benchmark.name")

    class Meta(MetricOut.Meta):
        fields = ["benchmark", *MetricOut.Meta.fields]


class MeasurementOut(serializers.ModelSerializer[Measurement]):
    session = serializers.IntegerField(source="boot.session_id")
    position = serializers.IntegerField(source="boot.position", help_text="Of the boot in its session, from 0.")
    arm = serializers.ChoiceField(source="boot.arm", choices=Boot.Arm.choices)
    benchmark = serializers.CharField(source="case.benchmark.name")
    version = serializers.CharField(source="version.hash", help_text="Of the benchmark that measured.")
    case = serializers.CharField(source="case.name")
    metric = serializers.CharField(source="metric.name")
    unit = serializers.CharField(source="metric.unit")
    core_type = serializers.CharField(source="core_type.name")
    values = serializers.ListField(child=serializers.FloatField(), help_text="In their order, warm-up first.")

    class Meta:
        model = Measurement
        list_serializer_class = PlainRows
        fields = [
            "id",
            "session",
            "position",
            "arm",
            "benchmark",
            "version",
            "case",
            "metric",
            "unit",
            "core_type",
            "recorded_at",
            "warmup",
            "values",
        ]


class CaseFilter(Filters):
    benchmark = NameFilter(named=Benchmark, path="benchmark")
    parameter = ParametersFilter(path="pk")
    enabled = YesOrNoFilter(label="whether it is measured today")

    class Meta:
        model = Case
        fields: tuple[str, ...] = ()


class MetricFilter(Filters):
    benchmark = NameFilter(named=Benchmark, path="benchmark")
    better = filters.ChoiceFilter(choices=Metric.Better.choices)

    class Meta:
        model = Metric
        fields: tuple[str, ...] = ()


class SampleFilter(Filters):
    arm = filters.ChoiceFilter(field_name="boot__arm", choices=Boot.Arm.choices)
    benchmark = NameFilter(named=Benchmark, path="case__benchmark")
    case = NameFilter(named=Case, path="case")
    metric = NameFilter(named=Metric, path="metric")
    parameter = ParametersFilter(path="case")

    class Meta:
        model = Measurement
        fields: tuple[str, ...] = ()


class MeasurementFilter(SampleFilter):
    # Measurements are read by boots alone: of all of them a page would cost what there is.
    session = IdFilter(field_name="boot__session_id", required=True)


class CatalogueUarchOut(serializers.ModelSerializer[Microarchitecture]):
    class Meta:
        model = Microarchitecture
        list_serializer_class = PlainRows
        fields = ["name", "title", "arch"]


class CatalogueCaseOut(CaseOut):
    class Meta(CaseOut.Meta):
        fields = ["name", "title", "parameters", "enabled"]


class CatalogueBenchmarkOut(BenchmarkOut):
    metrics = MetricOut(many=True)
    cases = CatalogueCaseOut(many=True)

    class Meta(BenchmarkOut.Meta):
        fields = [*BenchmarkOut.Meta.fields, "metrics", "cases"]


class CatalogueOut(serializers.Serializer[Any]):
    """What is measured and on what kinds of CPU: as many as the site has."""

    uarchs = CatalogueUarchOut(many=True)
    benchmarks = CatalogueBenchmarkOut(many=True)


class CatalogueView(PublicMixin, APIView):
    serializer_class = CatalogueOut

    @describe("catalogue", CatalogueOut)
    def get(self, _request: Request) -> Response:
        """All names that filters take of microarchitectures, benchmarks, cases and metrics, in one answer."""
        parts = [Prefetch(name, model._default_manager.order_by("name")) for name, model in _OF_BENCHMARK.items()]
        answer = {
            "uarchs": Microarchitecture.objects.order_by("name"),
            "benchmarks": Benchmark.objects.order_by("name").prefetch_related(*parts),
        }
        return self.told(CatalogueOut(answer))


_OF_BENCHMARK: dict[str, type[Model]] = {"metrics": Metric, "cases": Case}


class BenchmarkListView(PublicMixin, generics.ListAPIView[Benchmark]):
    queryset = Benchmark.objects.all()
    serializer_class = BenchmarkOut

    @describe("benchmark_list", BenchmarkOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class CaseListView(PublicMixin, generics.ListAPIView[Case]):
    queryset = Case.objects.select_related("benchmark")
    serializer_class = CaseRowOut
    filterset_class = CaseFilter

    @describe("case_list", CaseRowOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MetricListView(PublicMixin, generics.ListAPIView[Metric]):
    queryset = Metric.objects.select_related("benchmark")
    serializer_class = MetricRowOut
    filterset_class = MetricFilter

    @describe("metric_list", MetricRowOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


def _whole(rows: list[Measurement]) -> list[Measurement]:
    # Large, and few ask for what is old: it is read in where it is needed.
    from server.results.archive import whole  # noqa: PLC0415

    return whole(rows)


class MeasurementListView(PublicMixin, generics.ListAPIView[Measurement]):
    keeps = True
    # Of each row a few columns of seven tables, and it may have hundreds.
    queryset = Measurement.objects.select_related("boot", "case__benchmark", "metric", "core_type", "version").only(
        *("recorded_at", "warmup", "values", "summarised", "boot__session", "boot__position", "boot__arm"),
        *("case__name", "case__benchmark__name", "metric__name", "metric__unit", "core_type__name", "version__hash"),
    )
    serializer_class = MeasurementOut
    filterset_class = MeasurementFilter
    files = FILES

    def paginate_queryset(self, queryset: Any) -> Any:
        rows = super().paginate_queryset(queryset)
        return _whole(list(rows)) if rows and any(row.summarised for row in rows) else rows

    @describe("measurement_list", MeasurementOut(many=True))
    def get(  # type: ignore[override]  # a list's own gives pages alone
        self, request: Request, *args: Any, **kwargs: Any
    ) -> Response | StreamingHttpResponse:
        """Every value of one session, a row for each boot, case, metric and core type."""
        form = request.accepted_renderer
        if form.format not in {"arrow", "parquet"}:
            return self.list(request, *args, **kwargs)
        if strange := PAGING & request.query_params.keys():
            told = "This form has no pages: it brings all rows at once."
            raise serializers.ValidationError({name: [told] for name in sorted(strange)})
        batches = map(_whole, measurement_batches(self.filter_queryset(self.get_queryset())))
        # Large, and few ask for it: it is read in where it is needed.
        from server.api.arrow import measurement_stream  # noqa: PLC0415

        read = {name: attrgetter(str(field.source)) for name, field in MeasurementOut().fields.items()}
        content = measurement_stream(str(form.format), batches, self.column_names, read)
        return StreamingHttpResponse(content, content_type=form.media_type)
