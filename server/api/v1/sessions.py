"""Sessions, their cells and their samples."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django_filters import rest_framework as filters
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    IdFilter,
    NameFilter,
    SinceFilter,
    UntilFilter,
)
from server.api.formats import Rows
from server.api.pagination import CellPages
from server.api.public import PAGING, PublicMixin, SessionBriefOut, describe, page_of, paging, with_seen_virtual
from server.api.v1.findings import ComparisonOut
from server.detection.findings.table import cells_by_id
from server.lab.models import Boot, Machine, Microarchitecture, Session, SessionState
from server.results.measurements import columns


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
    columns = ColumnOut(many=True)


class SessionFilter(Filters):
    purpose = filters.ChoiceFilter(choices=Session.Purpose.choices)
    state = filters.ChoiceFilter(choices=SessionState.choices)
    series = IdFilter(field_name="series_id")
    machine = NameFilter(named=Machine, path="machine")
    uarch = NameFilter(named=Microarchitecture, path="machine__uarch")
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = Session
        fields: tuple[str, ...] = ()


class SessionListView(PublicMixin, generics.ListAPIView[Session]):
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


class SamplesView(PublicMixin, generics.GenericAPIView[Session]):
    serializer_class = SamplesOut

    @describe("session_samples", SamplesOut)
    def get(self, _request: Request, pk: int) -> StreamingHttpResponse:
        session = _session(pk)
        head = {**_marks(session), "clock": session.machine.clock}
        return StreamingHttpResponse(_samples(head, columns(session)), content_type="application/json")


def _session(pk: int) -> Session:
    return get_object_or_404(with_seen_virtual(Session.objects.select_related("machine")), pk=pk)


def _marks(session: Session) -> dict[str, Any]:
    virtual = bool(session.machine.virtual or getattr(session, "seen_virtual", False))
    return {"session": session.pk, "virtual": virtual, "evidence": not virtual}


def _samples(head: dict[str, Any], found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """SamplesOut, column by column: no session is ever in memory as a whole."""
    yield _json(head)[:-1] + ',"columns":['
    separator = ""
    for column in found:
        yield separator + _json(column)
        separator = ","
    yield "]}"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
