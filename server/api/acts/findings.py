"""What people decide about findings: whose they are, withdrawn, opened again, mended, accepted; and their reports,
released or not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import ActIn, Acting, ReasonIn, describe_act, filled
from server.api.acts.series import RetestIn, RetestOut, asked_again
from server.api.filters import unknown
from server.api.measured import BoundedList
from server.api.permissions import person_of
from server.core.models import LONGEST_ACTOR, PersonToken
from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.ledger import accept, ask_for_fix, reopen, withdraw_acceptance
from server.detection.lifecycle.remarks import LONGEST_SUBJECT, mark_duplicate, promise_fix
from server.detection.lifecycle.triage import as_seen, assign, retest, seen_now, triagers
from server.detection.models import Acceptance, Finding, FindingState
from server.lab.models import TrialState
from server.results.models import Metric

_TRIAGE, _MODERATE = PersonToken.Scope.TRIAGE, PersonToken.Scope.MODERATE
_MOST_UARCHS = 100
# The largest number of a row.
_LAST_STEP = 2**63 - 1


class SeenIn(ActIn):
    seen = serializers.IntegerField(
        min_value=0,
        max_value=_LAST_STEP,
        allow_null=True,
        default=None,
        help_text="As the finding was told with it: what a person did to it since then, or where it moved, is a 409.",
    )


class DecisionIn(SeenIn, ReasonIn):
    pass


class FindingActOut(serializers.Serializer[Any]):
    finding = serializers.IntegerField()
    state = serializers.ChoiceField(choices=FindingState.choices)
    acted = serializers.BooleanField(help_text="False: it was so already.")
    seen = serializers.IntegerField(help_text="What the next act can send: the step of its life that this act made.")


def _told_of(finding: Finding, *, acted: bool = True) -> dict[str, Any]:
    """Of one that is held: nobody else's step is in the mark."""
    finding.refresh_from_db(fields=["state"])
    return {"finding": finding.pk, "state": finding.state, "acted": acted, "seen": seen_now(finding.pk)}


class _Triage(Acting):
    scope: ClassVar[PersonToken.Scope] = _TRIAGE

    @contextmanager
    def held(self, pk: int, form: dict[str, Any], *, beside: int | None = None) -> Iterator[Finding]:
        """What the act is of, as it was seen; `seen` is taken out of the form."""
        get_object_or_404(Finding.objects.only("pk"), pk=pk)
        with as_seen(pk, form.pop("seen"), beside=beside) as finding:
            yield finding


class AssignmentIn(SeenIn):
    assignee = serializers.CharField(
        max_length=LONGEST_ACTOR,
        required=False,
        allow_null=True,
        help_text="Login name of who is to look after it. Left out: you. null: nobody.",
    )

    def validate_assignee(self, name: str | None) -> User | None:
        if name is None:
            return None
        found = triagers().filter(username=name).first()
        if found is None:
            raise unknown("triager", name, triagers().values_list("username", flat=True))
        return found


class AssignedOut(FindingActOut):
    assignee = serializers.CharField(allow_null=True)


class FindingAssignView(_Triage):
    @describe_act("finding_assign", AssignmentIn, {200: AssignedOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form, person = filled(AssignmentIn, request), person_of(request)
        with self.held(pk, form) as finding:
            assignee = form.get("assignee", person.user)
            acted = assign(finding, assignee, actor=person.actor)
            name = assignee.get_username() if assignee else None
            return Response({**_told_of(finding, acted=acted), "assignee": name})


class FindingWithdrawalIn(DecisionIn):
    why = serializers.ChoiceField(choices=[why.value for why in Why], help_text="What it was, and not the code.")


class FindingWithdrawView(_Triage):
    @describe_act("finding_withdraw", FindingWithdrawalIn, {200: FindingActOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(FindingWithdrawalIn, request)
        actor, why = person_of(request).actor, Why(form["why"])
        with self.held(pk, form) as finding:
            acted = invalidate(finding, actor=actor, why=why, reason=form["reason"])
            return Response(_told_of(finding, acted=acted))


class FindingReopenView(_Triage):
    @describe_act("finding_reopen", DecisionIn, {200: FindingActOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(DecisionIn, request)
        with self.held(pk, form) as finding:
            reopen(finding, actor=person_of(request).actor, reason=form["reason"])
            return Response(_told_of(finding))


class DuplicateIn(DecisionIn):
    of = serializers.IntegerField(min_value=1, help_text="The finding that tells of the same change.")


class FindingDuplicateView(_Triage):
    @describe_act("finding_duplicate", DuplicateIn, {200: FindingActOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form, actor = filled(DuplicateIn, request), person_of(request).actor
        other = Finding.objects.filter(pk=form["of"]).first()
        if other is None:
            raise ValidationError({"of": [f"There is no finding {form['of']}."]})
        with self.held(pk, form, beside=other.pk) as finding:
            acted = mark_duplicate(finding, other, actor=actor, reason=form["reason"])
            return Response(_told_of(finding, acted=acted))


class FindingRetestIn(SeenIn, RetestIn):
    pass


class FindingRetestOut(RetestOut):
    series = serializers.IntegerField(allow_null=True, help_text="Null of a change in a branch.")
    finding = serializers.IntegerField()


class FindingRetestView(Acting):
    scope: ClassVar[PersonToken.Scope] = PersonToken.Scope.RETEST

    @describe_act(
        "finding_retest", FindingRetestIn, {200: FindingRetestOut, 202: FindingRetestOut}, PersonToken.Scope.RETEST
    )
    def post(self, request: Request, pk: int) -> Response:
        form = filled(FindingRetestIn, request)
        finding = get_object_or_404(Finding, pk=pk)
        trial, new = retest(finding, actor=person_of(request).actor, **form)
        return asked_again(request, trial, {"finding": pk, "series": finding.series_id}, is_new=new)


class FixIn(SeenIn):
    """One of them. A `subject` is looked for in the finding's branch, now and later."""

    commit = serializers.RegexField(
        r"^[0-9a-f]{7,40}$", required=False, help_text="That is said to mend it, from 7 digits on."
    )
    subject = serializers.CharField(
        min_length=8, max_length=LONGEST_SUBJECT, required=False, help_text="Of the commit that will mend it."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("commit" in attrs) == ("subject" in attrs):
            raise ValidationError({"commit": ["Name a commit, or the subject of one."]})
        return attrs


class FixOut(FindingActOut):
    trial = serializers.IntegerField(allow_null=True, help_text="Null: the commit is looked for.")
    trial_state = serializers.ChoiceField(choices=TrialState.choices, allow_null=True)


class FindingFixView(_Triage):
    @describe_act("finding_fix", FixIn, {202: FixOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(FixIn, request)
        actor = person_of(request).actor
        with self.held(pk, form) as finding:
            if "subject" in form:
                acted = promise_fix(finding, form["subject"], actor=actor)
                return Response({**_told_of(finding, acted=acted), "trial": None, "trial_state": None}, status=202)
            trial = ask_for_fix(finding, form["commit"], actor=actor)
            answer = {**_told_of(finding), "trial": trial.pk, "trial_state": trial.state}
        return Response(answer, status=202)


class AcceptanceIn(DecisionIn):
    """Without `benchmark` and `metric` all metrics are accepted, without `uarchs` on all microarchitectures."""

    benchmark = serializers.CharField(max_length=60, required=False)
    metric = serializers.CharField(max_length=60, required=False)
    uarchs = BoundedList(child=serializers.CharField(max_length=60), default=list, max_length=_MOST_UARCHS)
    expires_at = serializers.DateTimeField(allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        benchmark, name = attrs.pop("benchmark", None), attrs.pop("metric", None)
        if (benchmark is None) != (name is None):
            raise ValidationError({"metric": ["A metric is named with its benchmark."]})
        metric = Metric.objects.filter(benchmark__name=benchmark, name=name).first() if name else None
        if name and metric is None:
            raise ValidationError({"metric": [f"{benchmark} has no metric {name}."]})
        return {**attrs, "metric": metric}


class AcceptedOut(FindingActOut):
    acceptance = serializers.IntegerField(help_text="The line of the ledger.")


class FindingAcceptView(_Triage):
    @describe_act("finding_accept", AcceptanceIn, {200: AcceptedOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(AcceptanceIn, request)
        with self.held(pk, form) as finding:
            known = finding.acceptances.order_by("-pk").values_list("pk", flat=True).first() or 0
            line = accept(finding, actor=person_of(request).actor, **form)
            return Response({**_told_of(finding, acted=line.pk > known), "acceptance": line.pk})


class AcceptanceWithdrawView(_Triage):
    @describe_act("acceptance_withdraw", DecisionIn, {200: AcceptedOut}, _TRIAGE)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(DecisionIn, request)
        line = get_object_or_404(Acceptance, pk=pk)
        with self.held(line.finding_id, form) as finding:
            acted = withdraw_acceptance(line, actor=person_of(request).actor, reason=form["reason"])
            return Response({**_told_of(finding, acted=acted), "acceptance": pk})
