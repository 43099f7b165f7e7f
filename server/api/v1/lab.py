"""Sessions and their samples."""

from typing import Any

from django.db.models import Prefetch, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.lab_filters import SessionFilter
from server.api.v1.reading import PublicMixin, describe, with_seen_virtual
from server.api.v1.serializers.common import SessionBriefOut
from server.api.v1.serializers.lab import SamplesOut, SessionOut
from server.lab.models import Boot, Session
from server.results.models import Measurement


class SessionListView(PublicMixin, generics.ListAPIView[Session]):
    serializer_class = SessionBriefOut
    filterset_class = SessionFilter

    def get_queryset(self) -> QuerySet[Session]:
        return with_seen_virtual(Session.objects.select_related("machine__uarch"))

    @describe("session_list", SessionBriefOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class SessionView(PublicMixin, generics.RetrieveAPIView[Session]):
    serializer_class = SessionOut

    def get_queryset(self) -> QuerySet[Session]:
        boots = Boot.objects.order_by("position")
        return with_seen_virtual(Session.objects.select_related("machine__uarch")).prefetch_related(
            Prefetch("boots", boots)
        )

    @describe("session_detail", SessionOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class SamplesView(PublicMixin, generics.GenericAPIView[Session]):
    serializer_class = SamplesOut

    @describe("session_samples", SamplesOut)
    def get(self, _request: Request, pk: int) -> Response:
        session = get_object_or_404(with_seen_virtual(Session.objects.select_related("machine")), pk=pk)
        virtual = bool(session.machine.virtual or getattr(session, "seen_virtual", False))
        return Response(
            {
                "session": session.pk,
                "virtual": virtual,
                "evidence": not virtual,
                "clock": session.machine.clock,
                "columns": _columns(session),
            }
        )


def _columns(session: Session) -> list[dict[str, Any]]:
    """Straight from the rows: thousands of numbers through a serializer would take most of the request's time."""
    names = ("case__benchmark__name", "case__name", "metric__name", "metric__unit", "metric__better", "core_type__name")
    rows = (
        Measurement.objects.filter(boot__session=session)
        .order_by(*names, "boot__position")
        .values_list(*names, "boot__position", "boot__arm", "warmup", "values")
    )
    columns: dict[tuple[str, ...], dict[str, Any]] = {}
    for *key, position, arm, warmup, values in rows:
        head = dict(zip(("benchmark", "case", "metric", "unit", "better", "core_type"), key, strict=True))
        column = columns.setdefault(tuple(key), {**head, "boots": [], "arms": [], "warmup": [], "values": []})
        column["boots"].append(position)
        column["arms"].append(arm)
        column["warmup"].append(warmup)
        column["values"].append(values)
    return list(columns.values())
