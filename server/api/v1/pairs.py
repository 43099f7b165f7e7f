"""Any two kernels side by side, from what is stored of them; and a case of a finding, to be run again."""

from collections.abc import Sequence
from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.filters import unknown
from server.api.formats import Rows
from server.api.public import PublicMixin, RevisionOut, VirtualOut, describe
from server.api.v1.findings import ComparisonOut
from server.api.v1.series import SeriesCaseOut
from server.core.errors import DomainError
from server.core.rows.together import Row, read_together
from server.detection.findings.table import published_case
from server.detection.models import Finding
from server.detection.trials.naming import HOW, asked_of, kernel_of
from server.detection.trials.pair import PairOnMachine, compare_kernels
from server.lab.models import Boot, Machine
from server.sources.models import Revision


class PairCellOut(ComparisonOut):
    """As a comparison of a finding, but computed for this answer and not stored."""

    comparison_id = None  # type: ignore[assignment]

    class Meta(ComparisonOut.Meta):
        fields = [name for name in ComparisonOut.Meta.fields if name != "comparison_id"]


class PairMachineOut(VirtualOut):
    """One machine; its comparisons are one family. The context holds sessions that were `seen_virtual`."""

    machine = serializers.CharField(source="session.machine.name")
    uarch = serializers.CharField(source="session.machine.uarch.name")
    shares_session = serializers.BooleanField(help_text="Boots of both kernels alternate in one session.")
    statement = serializers.CharField(help_text="What it means where they do not.")
    sessions = serializers.ListField(child=serializers.IntegerField(), help_text="Whose boots were used.")
    comparisons = PairCellOut(many=True)

    def get_virtual(self, row: PairOnMachine) -> bool:
        return row.session.machine.virtual or not self.context["seen_virtual"].isdisjoint(row.sessions)


class PairOut(serializers.Serializer[Any]):
    base = RevisionOut()
    patched = RevisionOut()
    machines = PairMachineOut(many=True, help_text="Those that measured both; none: nothing can be compared.")


class PairView(PublicMixin, APIView):
    keeps = True
    takes = ("base", "patched", "machine")
    takes_several = ("machine",)
    rows = Rows("machines.comparisons", PairCellOut, ("virtual", "evidence", "shares_session", "statement", "sessions"))

    @describe(
        "compare",
        PairOut,
        parameters=[
            OpenApiParameter("base", OpenApiTypes.STR, required=True, description=HOW),
            OpenApiParameter("patched", OpenApiTypes.STR, required=True, description=HOW),
            OpenApiParameter("machine", OpenApiTypes.STR, many=True, description="These alone; may come again."),
        ],
    )
    def get(self, request: Request) -> Response:
        """Two kernels, compared now from the stored samples, on every machine that measured both."""
        words = {name: request.query_params.get(name, "").strip() for name in ("base", "patched")}
        told = read_together(*map(asked_of, words.values()))
        (base, base_builds), (patched, patched_builds) = (
            _kernel(name, word, rows) for (name, word), rows in zip(words.items(), told, strict=True)
        )
        if base_builds & patched_builds:
            raise serializers.ValidationError({"patched": ["Both have the same content: they are one kernel."]})
        found = compare_kernels(base_builds, patched_builds, machines=_machines(request))
        answer = {"base": base, "patched": patched, "machines": found}
        return self.told(PairOut(answer, context={"seen_virtual": _seen_virtual(found)}))


def _kernel(name: str, word: str, rows: Sequence[Row]) -> tuple[Revision, set[int]]:
    """The revision that a parameter names, and its builds."""
    try:
        return kernel_of(word, rows)
    except DomainError as error:
        raise serializers.ValidationError({name: [error.message]}) from error


def _machines(request: Request) -> set[str]:
    wanted = set(request.query_params.getlist("machine"))
    if wanted:
        names = Machine.objects.order_by("name").values_list("name", flat=True)
        if strange := sorted(wanted.difference(names)):
            raise serializers.ValidationError({"machine": unknown("machine", strange[0], names).messages})
    return wanted


def _seen_virtual(found: list[PairOnMachine]) -> set[int]:
    """Sessions of which the probe of a boot saw a hypervisor."""
    used = {session for one in found for session in one.sessions}
    return set(Boot.objects.filter(session__in=used, facts__virtual=True).values_list("session_id", flat=True))


class FindingCaseView(PublicMixin, generics.GenericAPIView[Finding]):
    serializer_class = SeriesCaseOut

    @describe("finding_case", SeriesCaseOut)
    def get(self, _request: Request, pk: int, benchmark: str, case: str) -> Response:
        """The same document for a finding, of a change in a branch as well."""
        related = ("series__base__tree", "series__head__tree", "before__tree", "after__tree")
        finding = get_object_or_404(Finding.objects.select_related(*related).defer(*Finding.LONG), pk=pk)
        published = published_case(finding, benchmark=benchmark, case=case)
        if published is None:
            raise Http404
        return self.told(SeriesCaseOut(published))
