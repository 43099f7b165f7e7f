"""Findings: verdicts, comparisons, bisections and walks."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    FractionFilter,
    IdFilter,
    NameFilter,
    NamesFilter,
    ShaFilter,
    SinceFilter,
    UntilFilter,
    WordFilter,
)
from server.api.formats import PlainRows
from server.api.public import PublicMixin, VirtualOut, describe, with_seen_virtual_findings
from server.api.v1.benchmarks import ParametersFilter
from server.core.models import Transition
from server.detection.bisection.step import bisections_of
from server.detection.bisection.walk import walk_of
from server.detection.findings.filters import ClaimFilter, assignees, of_author, of_commit, of_mail, of_path, of_tree
from server.detection.findings.table import comparison_table, finding_vector, finding_vectors, sessions_of
from server.detection.lifecycle.triage import with_seen
from server.detection.models import Acceptance, Comparison, Finding
from server.detection.models.finding import FIGURES
from server.lab.models import Machine, Microarchitecture
from server.results.models import Benchmark, Case, Metric
from server.sources.models import Branch, Tree


class BisectionStepOut(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    round = serializers.IntegerField(help_text="Of the search; those before the bisection's own ended without answer.")
    kind = serializers.CharField()
    sha = serializers.CharField(help_text="Empty for the revert.")
    subject = serializers.CharField()
    answer = serializers.CharField(help_text="good, bad, skipped, unsure; empty while it is measured.")
    ratio = serializers.FloatField(
        allow_null=True, help_text="This revision / good end; of the step `culprit` / its parent."
    )
    reason = serializers.CharField()


class BisectionOut(serializers.Serializer[Any]):
    """On one machine, by the cell that moved most there."""

    id = serializers.IntegerField()
    machine = serializers.CharField()
    uarch = serializers.CharField()
    cell = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    reason_code = serializers.CharField()
    round = serializers.IntegerField(help_text="Counted up when it is searched once more.")
    effect = serializers.FloatField(help_text="bad end / good end")
    sessions = serializers.IntegerField()
    boots = serializers.IntegerField()
    seconds = serializers.FloatField(help_text="Machine time spent.")
    left = serializers.IntegerField(help_text="Revisions that may be it.")
    steps_left = serializers.IntegerField()
    seconds_left = serializers.FloatField(allow_null=True)
    culprit_sha = serializers.CharField(help_text="Empty until the state is found.")
    culprit_subject = serializers.CharField()
    steps = BisectionStepOut(many=True)


class WalkCellOut(serializers.Serializer[Any]):
    uarch = serializers.CharField()
    machine = serializers.CharField()
    name = serializers.CharField()
    verdict = serializers.CharField()
    ratio = serializers.FloatField(allow_null=True, help_text="With the patch / without it.")
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    cumulative = serializers.FloatField(allow_null=True, help_text="Up to this patch / base.")
    cumulative_low = serializers.FloatField(allow_null=True)
    cumulative_high = serializers.FloatField(allow_null=True)


class WalkRowOut(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    subject = serializers.CharField()
    sha = serializers.CharField()
    sentence = serializers.CharField()
    cells = WalkCellOut(many=True)


class WalkOut(serializers.Serializer[Any]):
    """Which patches earn their place."""

    state = serializers.CharField()
    rows = WalkRowOut(many=True)
    closing = serializers.ListField(child=serializers.CharField())


class FindingOut(VirtualOut, serializers.ModelSerializer[Finding]):
    tree = serializers.CharField(source="branch.tree.name", default=None, allow_null=True)
    branch = serializers.CharField(source="branch.name", default=None, allow_null=True)
    before = serializers.CharField(
        source="before.sha", default=None, allow_null=True, help_text="Of a branch: measured without it; it came after."
    )
    after = serializers.CharField(
        source="after.sha", default=None, allow_null=True, help_text="Of a branch: measured with it; it came no later."
    )
    culprit = serializers.CharField(
        source="culprit.sha", default=None, allow_null=True, help_text="The revision that made it."
    )
    fix = serializers.CharField(
        source="fix.sha", default=None, allow_null=True, help_text="The revision that mended it."
    )
    assignee = serializers.CharField(
        source="assignee.username", default=None, allow_null=True, help_text="Login name of who looks after it."
    )

    class Meta:
        model = Finding
        list_serializer_class = PlainRows
        fields = [
            "id",
            "series",
            "tree",
            "branch",
            "before",
            "after",
            "culprit",
            "fix",
            "assignee",
            "kind",
            "state",
            "state_since",
            "reason",
            "reason_code",
            "headline",
            "virtual",
            "evidence",
            "identical",
            "created_at",
            "trace",
        ]


class ComparisonOut(serializers.ModelSerializer[Comparison]):
    """Base against patched in one cell; ratios are patched / base."""

    comparison_id = serializers.IntegerField(source="pk")
    machine = serializers.CharField(source="session.machine.name")
    uarch = serializers.CharField(source="session.machine.uarch.name")
    clock = serializers.CharField(source="session.machine.clock")
    benchmark = serializers.CharField(source="case.benchmark.name")
    case = serializers.CharField(source="case.name")
    metric = serializers.CharField(source="metric.name")
    unit = serializers.CharField(source="metric.unit")
    better = serializers.CharField(source="metric.better")
    core_type = serializers.CharField(source="core_type.name")
    reason_code = serializers.CharField(read_only=True)

    class Meta:
        model = Comparison
        list_serializer_class = PlainRows
        fields = [
            "comparison_id",
            "machine",
            "uarch",
            "clock",
            "benchmark",
            "case",
            "metric",
            "unit",
            "better",
            "core_type",
            *FIGURES,
        ]
        read_only_fields = FIGURES


class ComponentOut(serializers.Serializer[Any]):
    """The verdict for one microarchitecture, and the cell that moved most there; null where nothing was measured."""

    uarch = serializers.CharField()
    title = serializers.CharField()
    verdict = serializers.CharField()
    reason = serializers.CharField()
    mde = serializers.FloatField(allow_null=True)
    mde_half = serializers.FloatField(allow_null=True, help_text="What half of the unchanged cells would have seen.")
    told = serializers.IntegerField(help_text="Cells that have a verdict.")
    untold = serializers.IntegerField(help_text="Cells that could not be told.")
    blind = serializers.IntegerField(help_text="Of these, cells without any figure.")
    missed = serializers.FloatField(
        allow_null=True, help_text="Largest change that the others of these may hide, as a fraction."
    )
    comparison_id = serializers.IntegerField(source="cell.pk", default=None, allow_null=True)
    ratio = serializers.FloatField(source="cell.ratio", default=None, allow_null=True, help_text="patched / base")
    low = serializers.FloatField(source="cell.ratio_low", default=None, allow_null=True, help_text="95 % interval")
    high = serializers.FloatField(source="cell.ratio_high", default=None, allow_null=True)
    machine = serializers.CharField(source="cell.session.machine.name", default=None, allow_null=True)
    benchmark = serializers.CharField(source="cell.case.benchmark.name", default=None, allow_null=True)
    case = serializers.CharField(source="cell.case.name", default=None, allow_null=True)
    metric = serializers.CharField(source="cell.metric.name", default=None, allow_null=True)
    core_type = serializers.CharField(source="cell.core_type.name", default=None, allow_null=True)


def _seen() -> serializers.IntegerField:
    told = "Names the last step of its life: an act that sends it is of the finding as it is here."
    return serializers.IntegerField(read_only=True, help_text=told)


class FindingRowOut(FindingOut):
    # The context holds the `vectors`.
    seen = _seen()
    vector = serializers.SerializerMethodField(help_text="One verdict for each microarchitecture.")

    class Meta(FindingOut.Meta):
        fields = [*FindingOut.Meta.fields, "seen", "vector"]

    @extend_schema_field(ComponentOut(many=True))
    def get_vector(self, finding: Finding) -> Any:
        return self.context["vectors"].get(finding.pk, [])


class GapOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    reason = serializers.CharField()


class ExplanationOut(serializers.Serializer[Any]):
    """Facts that separate the machines that changed from the others, by one case."""

    question = serializers.CharField()
    outcome = serializers.CharField()
    text = serializers.CharField()
    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    core_type = serializers.CharField()
    changed = serializers.ListField(child=serializers.CharField())
    others = serializers.ListField(child=serializers.CharField())
    conditions = serializers.ListField(child=serializers.CharField())
    chance = serializers.FloatField(allow_null=True, help_text="How often chance alone finds such facts.")


class CounterOut(serializers.Serializer[Any]):
    """A counter that moved with the metric; the ratio is patched / base."""

    machine = serializers.CharField()
    uarch = serializers.CharField()
    benchmark = serializers.CharField()
    case = serializers.CharField()
    counter = serializers.CharField()
    ratio = serializers.FloatField()
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)


class CheckOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    outcome = serializers.CharField(help_text="passed, failed, not-checked or pending")
    text = serializers.CharField()
    machine = serializers.CharField(help_text="Empty: all of them.")


class AcceptanceOut(serializers.ModelSerializer[Acceptance]):
    metric = serializers.CharField(source="metric.name", default=None, allow_null=True)

    class Meta:
        model = Acceptance
        fields = ["metric", "uarchs", "reason", "person", "expires_at", "withdrawn_at", "created_at"]


class FindingStepOut(serializers.ModelSerializer[Transition]):
    actor = serializers.CharField(help_text="The person who did it; empty: the service itself.")

    class Meta:
        model = Transition
        fields = ["at", "before", "after", "reason", "reason_code", "actor"]


class FindingDetailOut(FindingOut):
    # The context holds the `vector`, the `cells`, `bisections` and `walk`; all are virtual when the finding is.
    seen = _seen()
    explanations = ExplanationOut(many=True)
    counters = CounterOut(many=True)
    checks = CheckOut(many=True)
    acceptances = AcceptanceOut(many=True)
    transitions = serializers.SerializerMethodField(help_text="Every step of its life, oldest first.")
    bisections = serializers.SerializerMethodField()
    walk = serializers.SerializerMethodField()
    gaps = GapOut(many=True, help_text="What was wanted and has no result.")
    vector = serializers.SerializerMethodField()
    comparisons = serializers.SerializerMethodField()
    comparisons_left_out = serializers.SerializerMethodField(
        help_text="Rows beside these, in which less moved: sessions/ID/cells/ has all, as they were measured."
    )

    class Meta(FindingOut.Meta):
        fields = [
            *FindingOut.Meta.fields,
            "seen",
            "previous",
            "explanations",
            "counters",
            "checks",
            "acceptances",
            "transitions",
            "bisections",
            "walk",
            "gaps",
            "vector",
            "comparisons",
            "comparisons_left_out",
        ]

    @extend_schema_field(FindingStepOut(many=True))
    def get_transitions(self, finding: Finding) -> Any:
        rows = Transition.objects.filter(subject="finding", subject_id=finding.pk).order_by("id")
        return FindingStepOut(rows, many=True).data

    @extend_schema_field(BisectionOut(many=True))
    def get_bisections(self, _finding: Finding) -> Any:
        return BisectionOut(self.context["bisections"], many=True).data

    @extend_schema_field(WalkOut(allow_null=True))
    def get_walk(self, _finding: Finding) -> Any:
        walk = self.context["walk"]
        return None if walk is None else WalkOut(walk).data

    @extend_schema_field(ComponentOut(many=True))
    def get_vector(self, _finding: Finding) -> Any:
        return ComponentOut(self.context["vector"], many=True).data

    def get_comparisons_left_out(self, _finding: Finding) -> int:
        return int(self.context["left_out"])

    @extend_schema_field(ComparisonOut(many=True))
    def get_comparisons(self, _finding: Finding) -> Any:
        return ComparisonOut(self.context["cells"], many=True).data


class FindingFilter(Filters):
    """What is asked of a cell has to hold of one cell, in which the finding claims a change."""

    kind = filters.ChoiceFilter(choices=Finding.Kind.choices)
    state = filters.ChoiceFilter(choices=Finding.State.choices)
    assignee = WordFilter(
        field_name="assignee__username", what="assignee", known=assignees, label="login name of who looks after it"
    )
    series = IdFilter(field_name="series_id")
    uarch = NameFilter(named=Microarchitecture, path="verdicts__uarch")
    regressed_on = NamesFilter(named=Microarchitecture)
    improved_on = NamesFilter(named=Microarchitecture)
    machine = NameFilter(named=Machine, path="session__machine")
    benchmark = NameFilter(named=Benchmark, path="case__benchmark")
    case = NameFilter(named=Case, path="case")
    metric = NameFilter(named=Metric, path="metric")
    parameter = ParametersFilter(path="case")
    effect = FractionFilter(field_name="ratio", label="how far from 1 the ratio is, at least; 0.05 is 5 %")
    tree = NameFilter(named=Tree, path="tree", method="by_tree", label="of its branch, or of its series' base")
    branch = NameFilter(named=Branch, path="branch")
    author = filters.CharFilter(method="by_author", label="of the series")
    path = filters.CharFilter(method="by_path", label="with which that of a file begins that the series changes")
    message_id = filters.CharFilter(method="by_message_id", label="of any mail of the series")
    commit = ShaFilter(method="by_commit", label="its culprit, before, after or fix, from 7 digits on")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    _OF_A_CELL = ("machine", "benchmark", "case", "metric", "parameter")
    _OF_A_CLAIM = (*_OF_A_CELL, "regressed_on", "improved_on", "effect")

    class Meta:
        model = Finding
        fields: tuple[str, ...] = ()

    def by_tree(self, queryset: QuerySet[Finding], _name: str, value: list[int]) -> QuerySet[Finding]:
        return of_tree(queryset, value)

    def by_author(self, queryset: QuerySet[Finding], _name: str, value: str) -> QuerySet[Finding]:
        return of_author(queryset, value)

    def by_path(self, queryset: QuerySet[Finding], _name: str, value: str) -> QuerySet[Finding]:
        return of_path(queryset, value)

    def by_message_id(self, queryset: QuerySet[Finding], _name: str, value: str) -> QuerySet[Finding]:
        return of_mail(queryset, value)

    def by_commit(self, queryset: QuerySet[Finding], _name: str, value: str) -> QuerySet[Finding]:
        return of_commit(queryset, value)

    def filter_queryset(self, queryset: QuerySet[Finding]) -> QuerySet[Finding]:
        given = self.form.cleaned_data
        for name, value in given.items():
            if name not in self._OF_A_CLAIM:
                queryset = self.filters[name].filter(queryset, value)
        of_cell = [self.filters[name].condition(given[name]) for name in self._OF_A_CELL if given[name] is not None]
        few = given["machine"] is not None or given["case"] is not None
        return ClaimFilter(given["regressed_on"], given["improved_on"], of_cell, given["effect"], few).of(queryset)


_NAMES = ("branch__tree", "before", "after", "culprit", "fix")


class FindingListView(PublicMixin, generics.ListAPIView[Finding]):
    keeps = True
    serializer_class = FindingRowOut
    filterset_class = FindingFilter

    def get_queryset(self) -> QuerySet[Finding]:
        # One more table to join, and PostgreSQL would no longer look for the best order of them.
        rows = Finding.shown().select_related(*_NAMES).prefetch_related("assignee").defer(*Finding.LONG)
        rows = with_seen(rows) if self.wants("seen") else rows
        return with_seen_virtual_findings(rows) if self.wants("virtual", "evidence") else rows

    @describe("finding_list", FindingRowOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    def get_serializer(self, *given: Any, **more: Any) -> Any:
        vectors = finding_vectors([row.pk for rows in given for row in rows]) if self.wants("vector") else {}
        context = {**self.get_serializer_context(), "vectors": vectors}
        return self.narrowed(FindingRowOut(*given, context=context, **more))


class FindingView(PublicMixin, generics.GenericAPIView[Finding]):
    keeps = True
    serializer_class = FindingDetailOut

    @describe("finding_detail", FindingDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        named = Finding.objects.select_related("series", *_NAMES).prefetch_related("assignee")
        named = with_seen(named.defer("series__trailers"))
        findings = with_seen_virtual_findings(named)
        finding = get_object_or_404(findings, pk=pk)
        context: dict[str, Any] = {}
        if self.wants("comparisons", "comparisons_left_out"):
            table = comparison_table(sessions_of(finding), finding.checks)
            context["cells"] = [cell for row in table.rows for cell in row.cells if cell is not None]
            context["left_out"] = table.unshown
        if self.wants("vector"):
            context["vector"] = finding_vector(finding)
        if self.wants("bisections"):
            context["bisections"] = bisections_of(finding)
        if self.wants("walk"):
            context["walk"] = walk_of(finding.series) if finding.series is not None else None
        return self.told(FindingDetailOut(finding, context=context))
