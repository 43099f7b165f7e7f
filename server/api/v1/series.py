"""Series: what was posted, how far it has come, and every step of it."""

from collections.abc import Sequence
from typing import Any

from django.db.models import F, Prefetch, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.pagination import PatchPages, ShortPages
from server.api.v1.filters import SeriesFilter
from server.api.v1.reading import PublicMixin, describe, page_of, with_seen_virtual, with_seen_virtual_findings
from server.api.v1.serializers.cases import SeriesCaseOut
from server.api.v1.serializers.posting import MOST_OLDER, MOST_PATCHES, MOST_PATHS, SeriesPatchesOut
from server.api.v1.serializers.sources import HistoryOut, SeriesDetailOut, SeriesOut
from server.detection.models import Finding
from server.detection.published import published_case
from server.lab.models import Session
from server.reports.history import series_history
from server.reports.progress import series_progress_many
from server.sources.models import Patch, Series


def _context(series: Sequence[Series], *, with_report: bool = False) -> dict[str, Any]:
    findings = with_seen_virtual_findings(Finding.objects.filter(series__in=[one.pk for one in series]))
    findings = findings.select_related("culprit", "fix").defer(*Finding.LONG)
    if with_report:
        findings = findings.select_related("culprit", "fix", "report__delivery")
    return {
        "progress": {progress.series_id: progress for progress in series_progress_many(series)},
        "findings": {finding.series_id: finding for finding in findings},
    }


def _replaced() -> QuerySet[Series]:
    """The versions that a series has replaced, as VersionOut shows them, the newest first."""
    rows = Series.objects.only("version", "minor", "root_message_id", "state", "superseded_by")
    return rows.order_by("-version", "-minor", "-id")


def _patches() -> QuerySet[Patch]:
    """As PatchOut shows them, in their order."""
    unread = ("paths", "message__raw", "message__references", "message__trailers")
    patches = Patch.objects.select_related("message", "revision").defer(*unread)
    return patches.annotate(first_paths=F(f"paths__0_{MOST_PATHS}")).order_by("index")


class SeriesListView(PublicMixin, generics.ListAPIView[Series]):
    queryset = Series.objects.select_related("mailing_list").defer("trailers", "prerequisites")
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
        return {**super().get_serializer_context(), **_context(getattr(self, "page", []))}


class SeriesView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesDetailOut

    def get_queryset(self) -> QuerySet[Series]:
        sessions = with_seen_virtual(Session.objects.select_related("machine__uarch")).order_by("id")
        return Series.objects.select_related("mailing_list", "base__tree", "head__tree").prefetch_related(
            Prefetch("sessions", sessions),
            Prefetch("patches", _patches()[:MOST_PATCHES], to_attr="first_patches"),
            Prefetch("supersedes", _replaced()[:MOST_OLDER], to_attr="last_replaced"),
        )

    @describe("series_detail", SeriesDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        series = get_object_or_404(self.get_queryset(), pk=pk)
        return Response(SeriesDetailOut(series, context=_context([series], with_report=True)).data)


class SeriesPatchesView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesPatchesOut
    pagination_class = PatchPages

    @describe("series_patches", SeriesPatchesOut)
    def get(self, request: Request, pk: int) -> Response:
        series = get_object_or_404(Series.objects.only("pk"), pk=pk)
        rows, links = page_of(self, request, _patches().filter(series=series))
        return Response(SeriesPatchesOut({"series": series.pk, **links, "patches": rows}).data)


class SeriesCaseView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = SeriesCaseOut

    @describe("series_case", SeriesCaseOut)
    def get(self, _request: Request, pk: int, benchmark: str, case: str) -> Response:
        """One case with its cells on all machines: the document that `tidemark-agent reproduce` reads."""
        series = get_object_or_404(Series.objects.select_related("base__tree", "head__tree"), pk=pk)
        published = published_case(series, benchmark=benchmark, case=case)
        if published is None:
            raise Http404
        return Response(SeriesCaseOut(published).data)


class SeriesHistoryView(PublicMixin, generics.GenericAPIView[Series]):
    serializer_class = HistoryOut

    @describe("series_history", HistoryOut)
    def get(self, _request: Request, pk: int) -> Response:
        series = get_object_or_404(Series.objects.select_related("base", "head").defer("trailers"), pk=pk)
        return Response(HistoryOut({"series": series.pk, "steps": series_history(series)}).data)
