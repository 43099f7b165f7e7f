"""Sessions, their cells and their samples."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Max, Prefetch, QuerySet
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.answers import changed_at
from server.api.filters import (
    Filters,
    IdFilter,
    NameFilter,
    SinceFilter,
    UntilFilter,
)
from server.api.formats import FILES, PlainRows, Rows, field_names
from server.api.pagination import CellPages
from server.api.public import PAGING, PublicMixin, SessionBriefOut, describe, page_of, paging, with_seen_virtual
from server.api.v1.benchmarks import SampleFilter
from server.api.v1.findings import ComparisonOut
from server.core.rows.lines import as_json, csv_cell, csv_lines, json_lines
from server.detection.findings.table import cells_by_id
from server.lab.models import Boot, Machine, Microarchitecture, Session, SessionState
from server.results.models import ArchivedSession, Measurement
from server.results.samples import SampledCell, archived, sample_columns, sampled_cells
from server.sources.series.requests import holding


class BootOut(serializers.ModelSerializer[Boot]):
    outcome = serializers.CharField(source="reason", help_text="Why it is in this state.")
    notes = serializers.JSONField(help_text="Cases that gave no measurement, with the reason.")

    class Meta:
        model = Boot
        list_serializer_class = PlainRows
        fields = [
            "position",
            "arm",
            "state",
            "outcome",
            "reason_code",
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
        fields = [
            *SessionBriefOut.Meta.fields,
            "priority",
            "deadline_at",
            "needs",
            "base_build",
            "patched_build",
            "boots",
        ]


class SessionCellsOut(serializers.Serializer[Any]):
    """What was judged of a session, as it was measured: before the checks of a finding."""

    session = serializers.IntegerField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    next = serializers.URLField(allow_null=True, help_text="The next page of `cells`.")
    previous = serializers.URLField(allow_null=True)
    cells = ComparisonOut(many=True)


class ColumnOut(serializers.Serializer[Any]):
    """One (case, metric, core type). The five arrays have one entry for each boot that gave values."""

    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    unit = serializers.CharField()
    better = serializers.CharField()
    core_type = serializers.CharField()
    boots = serializers.ListField(child=serializers.IntegerField(), help_text="positions")
    arms = serializers.ListField(child=serializers.CharField())
    judged = serializers.ListField(
        child=serializers.BooleanField(),
        help_text="False for what came after the session had ended.",
    )
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
    archived = serializers.DateTimeField(
        allow_null=True, help_text="When they left for the archive, from which they are read; null: they have not."
    )
    columns = ColumnOut(many=True)


class SessionFilter(Filters):
    purpose = filters.ChoiceFilter(choices=Session.Purpose.choices)
    trial = IdFilter(field_name="trial_id", label="of one question, such as a retest")
    state = filters.ChoiceFilter(choices=SessionState.choices)
    series = IdFilter(field_name="series_id")
    message_id = filters.CharFilter(method="by_message_id", label="of any mail of the series")
    machine = NameFilter(named=Machine, path="machine")
    uarch = NameFilter(named=Microarchitecture, path="machine__uarch")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Session
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Session], _name: str, value: str) -> QuerySet[Session]:
        return queryset.filter(series__in=holding(value).order_by().values("pk"))


_VALUE = (
    *("session", "virtual", "evidence", "clock", "benchmark", "case", "metric", "unit", "better", "core_type"),
    *("boot", "arm", "judged", "run", "warmup", "value"),
)
Columns = Iterator[tuple[SampledCell, dict[str, list[Any]]]]


class SessionListView(PublicMixin, generics.ListAPIView[Session]):
    keeps = True
    serializer_class = SessionBriefOut
    filterset_class = SessionFilter

    def get_queryset(self) -> QuerySet[Session]:
        rows = Session.objects.select_related("machine__uarch")
        return with_seen_virtual(rows) if self.wants("virtual", "evidence") else rows

    @describe("session_list", SessionBriefOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class SessionView(PublicMixin, generics.RetrieveAPIView[Session]):
    serializer_class = SessionOut

    def get_queryset(self) -> QuerySet[Session]:
        boots = Boot.objects.order_by("position")
        rows = with_seen_virtual(Session.objects.select_related("machine__uarch"))
        return rows.prefetch_related(Prefetch("boots", boots)) if self.wants("boots") else rows

    @describe("session_detail", SessionOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class SessionCellsView(PublicMixin, generics.GenericAPIView[Session]):
    serializer_class = SessionCellsOut
    pagination_class = CellPages
    takes = PAGING
    rows = Rows("cells", ComparisonOut, ("session", "virtual", "evidence"))

    @describe("session_cells", SessionCellsOut, parameters=paging(CellPages))
    def get(self, request: Request, pk: int) -> Response:
        session = _session(pk)
        rows, links = page_of(self, request, cells_by_id(session.pk))
        return self.told(SessionCellsOut({**_marks(session), **links, "cells": rows}))


class SamplesView(PublicMixin, generics.GenericAPIView[Measurement]):
    queryset = Measurement.objects.all()
    serializer_class = SamplesOut
    filterset_class = SampleFilter
    rows = Rows("columns", ColumnOut, ("session", "virtual", "evidence", "clock"))
    files = FILES

    @property
    def known_fields(self) -> tuple[str, ...]:
        """Those of a column, or of a value where each has a row. The description names both."""
        form = getattr(getattr(self.request, "accepted_renderer", None), "format", None)
        own = field_names(ColumnOut)
        return {None: tuple({**dict.fromkeys(own), **dict.fromkeys(_VALUE)}), "json": own, "columns": own}.get(
            form, _VALUE
        )

    @describe("session_samples", SamplesOut)
    def get(self, request: Request, pk: int) -> StreamingHttpResponse:
        """Every value of a session, at once. As JSON a column for each cell; in the other forms each value is a row:
        session, virtual, evidence, clock, benchmark, case, metric, unit, better, core_type, boot (its position), arm,
        judged, run (from 0), warmup (whether it is not judged for that), value.
        """
        session = _session(pk)
        measured = self.filter_queryset(Measurement.objects.filter(boot__session=session))
        cells = sampled_cells(measured)
        has_left = any(cell.has_left for cell in cells)
        at = archived([session.pk]).get(session.pk) if has_left else None
        head = {**_marks(session), "clock": session.machine.clock, "archived": at and at.left_at}
        form = request.accepted_renderer
        columns = _from_archive(at, measured, cells) if at else sample_columns(measured, cells)
        content = _samples(str(form.format), head, cells, columns, self.column_names)
        kind = f"{form.media_type}; charset={form.charset}" if form.charset else form.media_type
        answer = StreamingHttpResponse(content, content_type=kind)
        last = _last_change(session, cells)
        changed_at(answer, max(last, at.left_at) if at and at.left_at else last)
        return answer


def _session(pk: int) -> Session:
    """It knows when a boot of it last changed, and when the last one ended."""
    rows = with_seen_virtual(Session.objects.select_related("machine"))
    boots = {"boots_since": Max("boots__state_since"), "boots_ended": Max("boots__ended_at")}
    return get_object_or_404(rows.annotate(**boots), pk=pk)


def _from_archive(at: ArchivedSession, measured: QuerySet[Measurement], cells: Sequence[SampledCell]) -> Columns:
    # As for Arrow: few ask for it.
    from server.results.archive import archived_columns  # noqa: PLC0415

    return archived_columns(at, measured, cells)


def _marks(session: Session) -> dict[str, Any]:
    virtual = bool(session.machine.virtual or getattr(session, "seen_virtual", False))
    return {"session": session.pk, "virtual": virtual, "evidence": not virtual}


def _last_change(session: Session, cells: Iterable[SampledCell]) -> datetime:
    """When anything that is told of its boots was changed last."""
    moments: list[datetime] = [session.state_since, *(cell.last_at for cell in cells)]
    moments += filter(None, (getattr(session, name) for name in ("boots_since", "boots_ended")))
    return max(moments)


def _samples(
    form: str, head: dict[str, Any], cells: Sequence[SampledCell], columns: Columns, names: Sequence[str]
) -> Iterator[bytes]:
    """Piece by piece: no session is ever in memory as a whole."""
    if form in {"arrow", "parquet"}:
        # Large, and few ask for it: it is read in where it is needed.
        from server.api.arrow import sample_stream  # noqa: PLC0415

        return sample_stream(form, head, cells, columns, names)
    if form == "csv":
        return csv_lines(_rows(head, columns, names, csv_cell), names)
    if form == "ndjson":
        return json_lines(dict(zip(names, row, strict=True)) for row in _rows(head, columns, names, lambda cell: cell))
    return _document(head, columns, names)


def _document(head: dict[str, Any], columns: Columns, names: Sequence[str]) -> Iterator[bytes]:
    """SamplesOut, column by column."""
    yield as_json(head)[:-1] + b',"columns":['
    separator = b""
    for cell, column in columns:
        whole = {**cell.names, **column}
        yield separator + as_json({name: whole[name] for name in names})
        separator = b","
    yield b"]}"


def _rows(
    head: dict[str, Any], columns: Columns, names: Sequence[str], told: Callable[[Any], Any]
) -> Iterator[list[Any]]:
    """A row for each value; what all values of a boot share is `told` once."""
    places = {name: place for place, name in enumerate(names)}
    run_at, warmup_at, value_at = (places.get(name) for name in ("run", "warmup", "value"))
    for cell, column in columns:
        boots = zip(column["boots"], column["arms"], column["judged"], column["warmup"], column["values"], strict=True)
        for boot, arm, judged, warmup, values in boots:
            shared = {**head, **cell.names, "boot": boot, "arm": arm, "judged": judged}
            row = [told(shared.get(name)) for name in names]
            for run, value in enumerate(values):
                if run_at is not None:
                    row[run_at] = run
                if warmup_at is not None:
                    row[warmup_at] = told(run < warmup)
                if value_at is not None:
                    row[value_at] = value
                yield row.copy()
