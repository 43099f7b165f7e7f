from typing import Any

from django.shortcuts import get_object_or_404
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.filters import FindingFilter
from server.api.v1.reading import PublicMixin, describe, with_seen_virtual_findings
from server.api.v1.serializers.findings import FindingDetailOut, FindingOut
from server.detection.bisecting.progress import bisections_of
from server.detection.bisecting.walks import walk_of
from server.detection.models import Finding
from server.detection.selectors import comparison_table, finding_vector, sessions_of

_NAMES = ("branch__tree", "before", "after", "culprit", "fix")


class FindingListView(PublicMixin, generics.ListAPIView[Finding]):
    queryset = with_seen_virtual_findings(Finding.objects.select_related(*_NAMES).defer(*Finding.LONG))
    serializer_class = FindingOut
    filterset_class = FindingFilter

    @describe("finding_list", FindingOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class FindingView(PublicMixin, generics.GenericAPIView[Finding]):
    serializer_class = FindingDetailOut

    @describe("finding_detail", FindingDetailOut)
    def get(self, _request: Request, pk: int) -> Response:
        named = Finding.objects.select_related("series", *_NAMES).defer("series__trailers")
        findings = with_seen_virtual_findings(named)
        finding = get_object_or_404(findings, pk=pk)
        table = comparison_table(sessions_of(finding), finding.checks)
        cells = [cell for row in table.rows for cell in row.cells if cell is not None]
        context = {
            "vector": finding_vector(finding),
            "cells": cells,
            "left_out": table.unshown,
            "bisections": bisections_of(finding),
            "walk": walk_of(finding.series) if finding.series is not None else None,
        }
        return Response(FindingDetailOut(finding, context=context).data)
