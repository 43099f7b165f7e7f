"""Series handed in, let run, and measured again."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.http import urlencode
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import Acting, ReasonIn, describe_act, filled
from server.api.filters import unknown
from server.api.measured import BoundedList
from server.api.parsers import plain_chunks
from server.api.permissions import person_of
from server.api.public import PublicMixin, describe
from server.core.errors import DomainError
from server.core.models import PersonToken
from server.detection.lifecycle.retest import retest_series
from server.lab.models import Machine, Trial, TrialState
from server.results.models import Benchmark, Case
from server.sources.messages.mailboxes import submit_mails
from server.sources.models import Series, SeriesState
from server.sources.series.requests import approve_series, holding, lines_to_read, may_be_approved, posting_mark

_Scope = PersonToken.Scope
MOST_BYTES = 1024 * 1024
_MOST_LINES = 500
_MOST_MACHINES = 50
_MOST_SHOWN = 50


class MboxParser(BaseParser):
    """The mails as they are: whatever charset is said, each mail says its own."""

    media_type = "application/mbox"

    def parse(self, stream: Any, _media_type: Any = None, parser_context: Any = None) -> Any:
        body = bytearray()
        for chunk in plain_chunks(stream, parser_context["request"]):
            body += chunk
            if len(body) > MOST_BYTES:
                raise DomainError("too-large", f"the body is larger than {MOST_BYTES} bytes")
        return bytes(body)


class PlainMailParser(MboxParser):
    media_type = "text/plain"


class SubmissionOut(serializers.Serializer[Any]):
    """Series are made of mails a moment after they came: `Location` is where this one is, or will be found."""

    message_id = serializers.CharField(help_text="Of its letter, or of its first patch.")
    mails = serializers.IntegerField()
    stored = serializers.IntegerField(help_text="Mails that were not here; 0: all of it was handed in before.")
    series = serializers.ListField(child=serializers.IntegerField(), help_text="Series that hold the mail already.")


class SubmissionMixin(Acting):
    """POST of the list of series."""

    scope: ClassVar[PersonToken.Scope] = _Scope.SUBMIT
    parser_classes: Any = [MboxParser, PlainMailParser]

    @describe_act(
        "series_submit",
        {"application/mbox": OpenApiTypes.BINARY, "text/plain": OpenApiTypes.STR},
        {200: SubmissionOut, 202: SubmissionOut},
        _Scope.SUBMIT,
    )
    def post(self, request: Request) -> Response:
        # Without a body no parser was asked.
        box: Any = request.data or b""
        given = submit_mails(box, actor=person_of(request).actor)
        found = list(holding(given.root).order_by("pk").values_list("pk", flat=True)[:_MOST_SHOWN])
        answer = {"message_id": given.root, "mails": given.mails, "stored": given.stored, "series": found}
        where = reverse("api-series-detail", args=found) if len(found) == 1 else _list_of(given.root)
        status = 202 if given.stored or not found else 200
        return Response(answer, status=status, headers={"Location": request.build_absolute_uri(where)})


def _list_of(message_id: str) -> str:
    return f"{reverse('api-series-list')}?{urlencode({'message_id': message_id})}"


class ApprovalOut(serializers.Serializer[Any]):
    """What somebody has to read who lets a series run: building it is running its author's code."""

    series = serializers.IntegerField()
    may_be_approved = serializers.BooleanField()
    seen = serializers.CharField(help_text="Names these mails; an approval is of them alone.")
    told = serializers.ListField(child=serializers.CharField(), help_text="Each mail, its sender, and what else ends.")


class ApprovalIn(ReasonIn):
    seen = serializers.CharField(max_length=64, help_text="As this address told it with the mails that were read.")


class SeriesActOut(serializers.Serializer[Any]):
    series = serializers.IntegerField()
    state = serializers.ChoiceField(choices=SeriesState.choices)
    acted = serializers.BooleanField(help_text="False: it was so already.")


class SeriesApprovalView(Acting, PublicMixin):
    scope: ClassVar[PersonToken.Scope] = _Scope.APPROVE

    @describe("series_approval", ApprovalOut)
    def get(self, _request: Request, pk: int) -> Response:
        series = get_object_or_404(Series.objects.select_related("cover"), pk=pk)
        # First: what comes in between is not in the mark, and so cannot be approved.
        mark, told = posting_mark(series), list(islice(lines_to_read(series), _MOST_LINES + 1))
        may = may_be_approved(series)
        return Response({"series": pk, "may_be_approved": may, "seen": mark, "told": told[:_MOST_LINES]})

    @describe_act("series_approve", ApprovalIn, {200: SeriesActOut}, _Scope.APPROVE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(ApprovalIn, request), person_of(request).actor
        series = get_object_or_404(Series, pk=pk)
        reason = f"approved by {actor}: {form['reason']}"
        acted = approve_series(series=series, reason=reason, seen=form["seen"], actor=actor)
        return Response({"series": pk, "state": series.state, "acted": acted})


class RetestIn(ReasonIn):
    machines = BoundedList(
        child=serializers.CharField(max_length=60),
        default=list,
        max_length=_MOST_MACHINES,
        help_text="Where; none: on all that its tree is interested in.",
    )

    benchmarks = BoundedList(
        child=serializers.CharField(max_length=121),
        default=list,
        max_length=_MOST_MACHINES,
        help_text="Names of benchmarks, or of cases as benchmark/case; none: those that it was measured with.",
    )

    def validate_benchmarks(self, names: list[str]) -> list[str]:
        for name in names:
            benchmark, _, case = name.partition("/")
            if not Benchmark.objects.filter(name=benchmark).exists():
                raise unknown("benchmark", name, Benchmark.objects.order_by("name").values_list("name", flat=True))
            if case and not Case.objects.filter(benchmark__name=benchmark, name__startswith=case).exists():
                cases = Case.objects.filter(benchmark__name=benchmark).order_by("name").values_list("name", flat=True)
                raise unknown("case", name, cases)
        return names

    def validate_machines(self, names: list[str]) -> list[Machine]:
        found = {machine.name: machine for machine in Machine.objects.filter(name__in=names)}
        for name in names:
            if name not in found:
                raise unknown("machine", name, Machine.objects.order_by("name").values_list("name", flat=True))
        return list(found.values())


class RetestOut(serializers.Serializer[Any]):
    """A trial of its own. Its answer is a check of the series' finding, named `retest`."""

    series = serializers.IntegerField()
    trial = serializers.IntegerField()
    state = serializers.ChoiceField(choices=TrialState.choices)
    machines = serializers.ListField(child=serializers.CharField(), help_text="Empty: all that its tree asks for.")
    benchmarks = serializers.ListField(child=serializers.CharField(), help_text="Empty: all.")
    acted = serializers.BooleanField(help_text="False: it is being measured again already.")


class SeriesRetestView(Acting):
    scope: ClassVar[PersonToken.Scope] = _Scope.RETEST

    @describe_act("series_retest", RetestIn, {200: RetestOut, 202: RetestOut}, _Scope.RETEST)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(RetestIn, request)
        series = get_object_or_404(Series, pk=pk)
        trial, new = retest_series(series, actor=person_of(request).actor, **form)
        return asked_again(request, trial, {"series": pk}, is_new=new)


def asked_again(request: Request, trial: Trial, of: Mapping[str, int | None], *, is_new: bool) -> Response:
    names = list(trial.machines.order_by("name").values_list("name", flat=True))
    measured = {"machines": names, "benchmarks": trial.benchmarks}
    answer = {**of, "trial": trial.pk, "state": trial.state, **measured, "acted": is_new}
    where = f"{reverse('api-session-list')}?{urlencode({'trial': trial.pk})}"
    return Response(answer, status=202 if is_new else 200, headers={"Location": request.build_absolute_uri(where)})
