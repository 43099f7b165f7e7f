"""Series: list, detail, patches, history, and one published case with all that is needed to run it again."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import F, Prefetch, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import Filters, NameFilter, SinceFilter, UntilFilter, YesOrNoFilter
from server.api.formats import Rows
from server.api.pagination import PatchPages, ShortPages
from server.api.public import (
    PAGING,
    AuthorOut,
    PublicMixin,
    RevisionOut,
    SessionBriefOut,
    describe,
    page_of,
    paging,
    with_seen_virtual,
    with_seen_virtual_findings,
)
from server.api.v1.benchmarks import CaseOut, MetricOut
from server.api.v1.findings import ComparisonOut, FindingOut
from server.api.v1.reports import ReportOut
from server.builds.models import Build
from server.core.models import Transition
from server.detection.findings.table import PublishedCase, PublishedMachine, published_case
from server.detection.models import Finding
from server.lab.models import Session
from server.reports.progress import ProgressState, series_history, series_progress_many
from server.reports.stages import StageName, StageState
from server.sources.models import MailingList, Message, Patch, Series, SeriesState, Tree
from server.sources.series.requests import holding, touching
from server.sources.trust.senders import sender_rows

FORMAT, VERSION = "tidemark-case", 1
# A fact is whatever an agent sent; a document for everyone holds short ones.
_LONGEST_FACT = 4000
_LONG = ("trailers", "prerequisites", "superseded_by__trailers", "superseded_by__prerequisites")
_MOST_FLAGS = 1000


class KernelOut(serializers.ModelSerializer[Build]):
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")

    class Meta:
        model = Build
        fields = ["id", "build_id", "arch", "config", "toolchain"]


class CaseMachineOut(serializers.Serializer[PublishedMachine]):
    """A machine that measured the case; the facts are those of its first measured boot."""

    name = serializers.CharField()
    uarch = serializers.CharField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    clock = serializers.CharField()
    session = serializers.IntegerField()
    base = KernelOut(source="base_build")
    patched = KernelOut(source="patched_build")
    model_name = serializers.SerializerMethodField()
    kernel_release = serializers.SerializerMethodField()
    cmdline = serializers.SerializerMethodField()
    flags = serializers.SerializerMethodField()

    def get_model_name(self, machine: PublishedMachine) -> str:
        return _text(machine, "model_name")

    def get_kernel_release(self, machine: PublishedMachine) -> str:
        return _text(machine, "kernel_release")

    def get_cmdline(self, machine: PublishedMachine) -> str:
        return _text(machine, "cmdline")

    def get_flags(self, machine: PublishedMachine) -> list[str]:
        flags = machine.facts.get("flags")
        return [str(flag)[:60] for flag in flags[:_MOST_FLAGS]] if isinstance(flags, list) else []


class SeriesCaseOut(serializers.Serializer[Any]):
    format = serializers.SerializerMethodField(help_text=FORMAT)
    version = serializers.SerializerMethodField(help_text="Grows when something is left out or means another thing.")
    series = serializers.IntegerField(source="series.pk", default=None, allow_null=True)
    finding = serializers.IntegerField(
        source="finding.pk", default=None, allow_null=True, help_text="Where it was asked for by its finding."
    )
    subject = serializers.CharField(help_text="Of the series, or the headline of the finding.")
    message_id = serializers.CharField(help_text="Of the series; empty for a change in a branch.")
    base = RevisionOut(allow_null=True)
    patched = RevisionOut(allow_null=True)
    case = CaseOut()
    metrics = MetricOut(many=True)
    machines = CaseMachineOut(many=True)
    cells = ComparisonOut(many=True)

    def get_format(self, _case: Any) -> str:
        return FORMAT

    def get_version(self, _case: Any) -> int:
        return VERSION

    def to_representation(self, instance: PublishedCase) -> dict[str, Any]:
        document = dict(super().to_representation(instance))
        # A benchmark may have changed since; the figures are of the one that was run.
        document["case"]["version"] = instance.version
        return document


def _text(machine: PublishedMachine, name: str) -> str:
    value = machine.facts.get(name)
    return value[:_LONGEST_FACT] if isinstance(value, str) else ""


class DiffstatOut(serializers.Serializer[Any]):
    files = serializers.IntegerField()
    insertions = serializers.IntegerField(help_text="lines")
    deletions = serializers.IntegerField()


# Of one patch; those that touch more say so by `diffstat.files`.
MOST_PATHS = 100
# In the answer about a series; `patches/` below it has pages of all.
MOST_PATCHES = 200
# A robot posts one subject every day.
MOST_OLDER = 100
MOST_STEPS = 500


class PatchOut(serializers.ModelSerializer[Patch]):
    # The context's patches are read with `first_paths`.
    message_id = serializers.CharField(source="message.message_id")
    message = serializers.IntegerField(source="message_id", help_text="Its mail, in `messages/`.")
    author = AuthorOut(source="message")
    patch_id = serializers.CharField(
        source="git_id", help_text="Of `git patch-id --stable`; empty where nobody needed it."
    )
    commit = serializers.CharField(source="revision.sha", default=None, allow_null=True)
    diffstat = DiffstatOut(source="message")
    paths = serializers.ListField(
        child=serializers.CharField(), source="first_paths", help_text=f"Old and new names, the first {MOST_PATHS}."
    )

    class Meta:
        model = Patch
        fields = [
            "index",
            "subject",
            "message_id",
            "message",
            "author",
            "diffstat",
            "paths",
            "trailers",
            "patch_id",
            "commit",
        ]


class SeriesPatchesOut(serializers.Serializer[Any]):
    """Patches of a series in their order."""

    series = serializers.IntegerField()
    next = serializers.URLField(allow_null=True, help_text="The next page of `patches`.")
    previous = serializers.URLField(allow_null=True)
    patches = PatchOut(many=True)


class SenderOut(serializers.Serializer[Any]):
    """One address that sent mails of the series."""

    address = serializers.CharField()
    name = serializers.CharField()
    mails = serializers.IntegerField()
    proved = serializers.BooleanField(allow_null=True, help_text="null: not checked yet")
    proofs = serializers.ListField(
        child=serializers.CharField(), help_text="What proved the sender, or why nothing did."
    )


class TransitionOut(serializers.ModelSerializer[Transition]):
    state = serializers.CharField(source="after")

    class Meta:
        model = Transition
        fields = ["state", "reason", "reason_code", "at"]


class VersionOut(serializers.ModelSerializer[Series]):
    message_id = serializers.CharField(source="first_message_id")

    class Meta:
        model = Series
        fields = ["id", "version", "minor", "message_id", "state"]


def _choices(words: Any) -> list[str]:
    return list(words.__args__)


PROGRESS_STATES = _choices(ProgressState)


class ProgressOut(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=PROGRESS_STATES)
    reason = serializers.CharField()


class BuildProgressOut(serializers.Serializer[Any]):
    arm = serializers.CharField()
    build = serializers.IntegerField(allow_null=True)
    config = serializers.CharField()
    toolchain = serializers.CharField()
    state = serializers.CharField(help_text="`missing` until it is wanted")
    detail = serializers.CharField()


class SessionProgressOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    session = serializers.IntegerField(allow_null=True)
    state = serializers.CharField(help_text="`missing` until it is planned")
    measured = serializers.IntegerField(help_text="boots")
    failed = serializers.IntegerField()
    planned = serializers.IntegerField()
    detail = serializers.CharField()


class StageOut(serializers.Serializer[Any]):
    name = serializers.ChoiceField(choices=_choices(StageName))
    state = serializers.ChoiceField(choices=_choices(StageState))
    detail = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    builds = BuildProgressOut(many=True)
    sessions = SessionProgressOut(many=True)


class FullProgressOut(ProgressOut):
    stages = StageOut(many=True)


class SeriesOut(serializers.ModelSerializer[Series]):
    # The context holds `progress` and `findings` by series id, each loaded for all series at once.
    message_id = serializers.CharField(source="first_message_id")
    list = serializers.CharField(source="mailing_list.name")
    progress = serializers.SerializerMethodField()
    finding = serializers.SerializerMethodField()

    class Meta:
        model = Series
        fields = [
            "id",
            "message_id",
            "list",
            "subject",
            "version",
            "minor",
            "total",
            "submitted_at",
            "received_at",
            "rfc",
            "resend",
            "tags",
            "change_id",
            "base_certain",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "progress",
            "finding",
        ]

    # Made once for all rows: of a page, making their fields took most of the time.
    @cached_property
    def _progress_out(self) -> ProgressOut:
        return ProgressOut()

    @cached_property
    def _finding_out(self) -> FindingOut:
        return FindingOut()

    @extend_schema_field(ProgressOut)
    def get_progress(self, series: Series) -> Any:
        return self._progress_out.to_representation(self.context["progress"][series.pk])

    @extend_schema_field(FindingOut(allow_null=True))
    def get_finding(self, series: Series) -> Any:
        finding = self.context["findings"].get(series.pk)
        return self._finding_out.to_representation(finding) if finding else None


class SeriesDetailOut(SeriesOut):
    author = AuthorOut(source="*")
    base = RevisionOut(allow_null=True)
    head = RevisionOut(allow_null=True)
    # Read with `first_patches`.
    patches = PatchOut(
        source="first_patches",
        many=True,
        help_text=f"The first {MOST_PATCHES}; `total` says how many were announced, `series/ID/patches/` has all.",
    )
    sessions = SessionBriefOut(many=True)
    senders = serializers.SerializerMethodField()
    supersedes = VersionOut(source="last_replaced", many=True, help_text=f"The newest {MOST_OLDER}.")
    transitions = serializers.SerializerMethodField(help_text=f"The last {MOST_STEPS}.")
    report = serializers.SerializerMethodField()

    class Meta(SeriesOut.Meta):
        fields = [
            *SeriesOut.Meta.fields,
            "author",
            "senders",
            "checked_at",
            "superseded_by",
            "supersedes",
            "trace",
            "transitions",
            "base_commit",
            "prerequisites",
            "base",
            "base_how",
            "head",
            "benchmarks",
            "trailers",
            "patches",
            "sessions",
            "report",
        ]

    @extend_schema_field(FullProgressOut)
    def get_progress(self, series: Series) -> Any:
        return FullProgressOut(self.context["progress"][series.pk]).data

    @extend_schema_field(SenderOut(many=True))
    def get_senders(self, series: Series) -> Any:
        return SenderOut(sender_rows(series), many=True).data

    @extend_schema_field(TransitionOut(many=True))
    def get_transitions(self, series: Series) -> Any:
        steps = Transition.objects.filter(subject="series", subject_id=series.pk).order_by("-id")[:MOST_STEPS]
        return TransitionOut(list(steps)[::-1], many=True).data

    @extend_schema_field(ReportOut(allow_null=True))
    def get_report(self, series: Series) -> Any:
        report = getattr(self.context["findings"].get(series.pk), "report", None)
        return ReportOut(report).data if report else None


class StepOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    trace = serializers.CharField()
    subject = serializers.CharField(help_text="Kind of row: series, build, session, boot, attempt ...")
    subject_id = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]  # a name of its own in the answer
    before = serializers.CharField(help_text="Empty for the first step.")
    after = serializers.CharField()
    reason = serializers.CharField()
    actor = serializers.CharField(help_text="The person who did it; empty: the service itself.")


class HistoryOut(serializers.Serializer[Any]):
    series = serializers.IntegerField()
    steps = StepOut(many=True)


class SeriesFilter(Filters):
    state = filters.ChoiceFilter(choices=SeriesState.choices)
    list = NameFilter(named=MailingList, path="mailing_list")
    message_id = filters.CharFilter(method="by_message_id", label="of the first mail or of any patch")
    change_id = filters.CharFilter()
    tree = NameFilter(named=Tree, path="base__tree", label="of its base")
    path = filters.CharFilter(method="by_path", label="with which that of a changed file begins")
    author = filters.CharFilter(field_name="author_address", lookup_expr="iexact")
    base_certain = YesOrNoFilter(label="whether the mails themselves tell the base")
    since = SinceFilter(field_name="received_at")
    until = UntilFilter(field_name="received_at")
    finding = filters.ChoiceFilter(field_name="finding__kind", choices=Finding.Kind.choices)

    class Meta:
        model = Series
        fields: tuple[str, ...] = ()

    def by_path(self, queryset: QuerySet[Series], _name: str, value: str) -> QuerySet[Series]:
        return queryset.filter(pk__in=touching(value).order_by().values("series"))

    def by_message_id(self, queryset: QuerySet[Series], _name: str, value: str) -> QuerySet[Series]:
        return queryset.filter(pk__in=holding(value).values("pk"))


def _context(series: Sequence[Series], *, with_report: bool = False) -> dict[str, Any]:
    findings = with_seen_virtual_findings(Finding.objects.filter(series__in=[one.pk for one in series]))
    findings = findings.select_related("culprit", "fix", "report__delivery").defer(*Finding.LONG)
    rows = findings if with_report else findings.defer("report__body")
    found = {finding.series_id: finding for finding in rows if finding.series_id is not None}
    return {
        "progress": {progress.series_id: progress for progress in series_progress_many(series, found)},
        "findings": found,
    }


def _replaced() -> QuerySet[Series]:
    """The versions that a series has replaced, as VersionOut shows them, the newest first."""
    rows = Series.objects.only("version", "minor", "root_message_id", "state", "superseded_by")
    return rows.order_by("-version", "-minor", "-id")


def _patches() -> QuerySet[Patch]:
    """As PatchOut shows them, in their order."""
    unread = ["message__trailers", *(f"message__{name}" for name in Message.LONG)]
    patches = Patch.objects.select_related("message", "revision").defer(*unread)
    return patches.annotate(first_paths=F(f"message__paths__0_{MOST_PATHS}")).order_by("index")


class SeriesListView(PublicMixin, generics.ListAPIView[Series]):
    keeps = True
    queryset = Series.shown().select_related("mailing_list", "base", "head", "superseded_by").defer(*_LONG)
    serializer_class = SeriesOut
    filterset_class = SeriesFilter
    pagination_class = ShortPages

    @describe("series_list", SeriesOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        self.page = super().paginate_queryset(queryset) or []
        return self.page

    def get_serializer_context(self) -> dict[str, Any]:
        asked = self.wants("progress", "finding")
        return {**super().get_serializer_context(), **(_context(getattr(self, "page", [])) if asked else {})}


class SeriesView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesDetailOut

    def get_queryset(self) -> QuerySet[Series]:
        sessions = with_seen_virtual(Session.objects.select_related("machine__uarch")).order_by("id")
        parts = {
            "sessions": Prefetch("sessions", sessions),
            "patches": Prefetch("patches", _patches()[:MOST_PATCHES], to_attr="first_patches"),
            "supersedes": Prefetch("supersedes", _replaced()[:MOST_OLDER], to_attr="last_replaced"),
        }
        rows = Series.objects.select_related("mailing_list", "base__tree", "head__tree")
        return rows.prefetch_related(*(part for name, part in parts.items() if self.wants(name)))

    @describe("series_detail", SeriesDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        series = get_object_or_404(self.get_queryset(), pk=pk)
        asked = self.wants("progress", "finding", "report")
        return self.told(SeriesDetailOut(series, context=_context([series], with_report=True) if asked else {}))


class SeriesPatchesView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesPatchesOut
    pagination_class = PatchPages
    takes = PAGING
    rows = Rows("patches", PatchOut, ("series",))

    @describe("series_patches", SeriesPatchesOut, parameters=paging(PatchPages))
    def get(self, request: Request, pk: int) -> Response:
        series = get_object_or_404(Series.objects.only("pk"), pk=pk)
        rows, links = page_of(self, request, _patches().filter(series=series))
        return self.told(SeriesPatchesOut({"series": series.pk, **links, "patches": rows}))


class SeriesCaseView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesCaseOut

    @describe("series_case", SeriesCaseOut)
    def get(self, _request: Request, pk: int, benchmark: str, case: str) -> Response:
        """One case with its cells on all machines: the document that `tidemark-agent reproduce` reads."""
        series = get_object_or_404(Series.objects.select_related("base__tree", "head__tree"), pk=pk)
        published = published_case(series, benchmark=benchmark, case=case)
        if published is None:
            raise Http404
        return self.told(SeriesCaseOut(published))


class SeriesHistoryView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = HistoryOut
    rows = Rows("steps", StepOut, ("series",))

    @describe("series_history", HistoryOut)
    def get(self, _request: Request, pk: int) -> Response:
        series = get_object_or_404(Series.objects.select_related("base", "head").defer("trailers"), pk=pk)
        return self.told(HistoryOut({"series": series.pk, "steps": series_history(series)}))
