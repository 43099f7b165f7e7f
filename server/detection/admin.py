"""Answering questions about machines in the admin: a text, and the name of who is logged in."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import PartsInline, PlainAdmin, ReadOnlyAdmin, each
from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.ledger import accept, reopen, withdraw_acceptance
from server.detection.models import (
    Acceptance,
    Bisection,
    BisectionStep,
    ChangePoint,
    Comparison,
    Finding,
    FindingTrial,
    FindingVerdict,
    FleetState,
    MachineQuestion,
    MeasuredHead,
    NoiseProfile,
    Recomputation,
    RecomputationChunk,
    Timeline,
    TimelinePoint,
)
from server.detection.noise.questions import answer_question
from server.lab.admin import ReasonForm


class QuestionActions(PlainAdmin):
    action_form = ReasonForm
    actions = ["answer"]

    def has_answer_permission(self, request: HttpRequest) -> bool:
        """The rows are read-only, so that the page's own permission to change them is nobody's."""
        return request.user.has_perm("detection.change_machinequestion")

    @admin.action(description="Answer: what was found", permissions=["answer"])
    def answer(self, request: HttpRequest, queryset: "QuerySet[MachineQuestion]") -> None:
        actor, text = request.user.get_username(), request.POST.get("reason", "").replace("\0", "")
        each(self, request, queryset, lambda question: answer_question(question, actor, text))


class FindingReasonForm(ActionForm):
    """Stands beside the choice of the action; a decision without a reason is refused where it is carried out."""

    reason = forms.CharField(required=False, max_length=500, label="Reason (shown to everybody):")


def _told(request: HttpRequest) -> tuple[str, str]:
    return request.user.get_username(), request.POST.get("reason", "").replace("\0", "")


class FindingActions(PlainAdmin):
    action_form = FindingReasonForm
    actions = ["accept_all", "invalidate_noise", "invalidate_layout", "invalidate_machine", "reopen"]

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("detection.change_finding")

    @admin.action(description="Accept all that regressed, without an end", permissions=["decide"])
    def accept_all(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda finding: accept(finding, actor=actor, reason=reason))

    @admin.action(description="Open again: it is not mended", permissions=["decide"])
    def reopen(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda finding: reopen(finding, actor=actor, reason=reason))

    @admin.action(description="Withdraw: it was noise", permissions=["decide"])
    def invalidate_noise(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.NOISE))

    @admin.action(description="Withdraw: only how code is placed", permissions=["decide"])
    def invalidate_layout(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.LAYOUT))

    @admin.action(description="Withdraw: it was the machine", permissions=["decide"])
    def invalidate_machine(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.MACHINE))


class AcceptanceActions(PlainAdmin):
    action_form = FindingReasonForm
    actions = ["withdraw"]

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("detection.change_finding")

    @admin.action(description="Take back: it is not accepted any more", permissions=["decide"])
    def withdraw(self, request: HttpRequest, queryset: "QuerySet[Acceptance]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda line: withdraw_acceptance(line, actor=actor, reason=reason))


def _withdraw(request: HttpRequest, why: Why) -> Callable[[Any], object]:
    actor, reason = _told(request)
    return lambda finding: invalidate(finding, actor=actor, why=why, reason=reason)


@admin.register(Comparison)
class ComparisonAdmin(ReadOnlyAdmin):
    list_display = [
        "id",
        "session",
        "case",
        "metric",
        "verdict",
        "ratio",
        "ratio_low",
        "ratio_high",
        "p_adjusted",
        "mde",
    ]
    list_filter = ["verdict", "case"]
    list_select_related = ["session__machine", "case__benchmark", "metric__benchmark"]
    search_fields = ["session__series__subject", "session__machine__name", "case__name"]


class FindingVerdictInline(PartsInline):
    model = FindingVerdict
    readonly_fields = ["uarch", "verdict", "reason", "comparison", "mde"]


@admin.register(Finding)
class FindingAdmin(FindingActions, ReadOnlyAdmin):
    documents = ("gaps", "explanations", "counters", "checks")
    list_display = ["id", "series", "branch", "kind", "headline", "virtual", "state", "state_since"]
    list_filter = ["state", "kind", "virtual"]
    list_select_related = ["series", "branch__tree"]
    search_fields = ["headline", "series__subject", "=trace"]
    inlines = [FindingVerdictInline]


@admin.register(FindingVerdict)
class FindingVerdictAdmin(ReadOnlyAdmin):
    documents = ("finding__gaps", "finding__explanations", "finding__counters", "finding__checks")
    list_display = ["finding", "uarch", "verdict", "mde", "reason"]
    list_filter = ["verdict", "uarch"]
    list_select_related = ["finding__series", "uarch"]
    search_fields = ["finding__series__subject", "uarch__name"]


@admin.register(Acceptance)
class AcceptanceAdmin(AcceptanceActions, ReadOnlyAdmin):
    documents = ("finding__gaps", "finding__explanations", "finding__counters", "finding__checks")
    list_display = ["finding", "person", "reason", "uarchs", "expires_at", "withdrawn_at"]
    list_select_related = ["finding__series", "finding__branch__tree"]
    search_fields = ["person", "reason", "finding__headline"]


class BisectionStepInline(PartsInline):
    model = BisectionStep
    readonly_fields = ["number", "round", "kind", "index", "trial", "answer", "ratio", "reason"]


@admin.register(Bisection)
class BisectionAdmin(ReadOnlyAdmin):
    documents = ("revisions", "finding__gaps", "finding__explanations", "finding__counters", "finding__checks")
    list_display = ["id", "finding", "machine", "round", "low", "high", "culprit", "state", "state_since"]
    list_filter = ["state", "machine"]
    list_select_related = ["finding__series", "finding__branch__tree", "machine", "culprit"]
    search_fields = ["finding__headline", "machine__name", "=trace"]
    inlines = [BisectionStepInline]


@admin.register(BisectionStep)
class BisectionStepAdmin(ReadOnlyAdmin):
    list_select_related = ["bisection__machine"]
    documents = ("bisection__revisions",)
    list_display = ["bisection", "number", "round", "kind", "answer", "ratio", "reason"]
    list_filter = ["kind", "answer"]
    search_fields = ["bisection__machine__name", "reason"]


@admin.register(MachineQuestion)
class MachineQuestionAdmin(QuestionActions, ReadOnlyAdmin):
    list_display = ["id", "machine", "kind", "detail", "state", "state_since"]
    list_filter = ["state", "kind", "machine"]
    list_select_related = ["machine"]
    search_fields = ["machine__name", "detail", "key"]


@admin.register(NoiseProfile)
class NoiseProfileAdmin(ReadOnlyAdmin):
    list_display = [
        "machine",
        "case",
        "metric",
        "comparisons",
        "false_alarms",
        "change_95",
        "boot_sd",
        "mde",
        "last_at",
    ]
    list_filter = ["machine"]
    list_select_related = ["machine", "case__benchmark", "metric__benchmark"]
    search_fields = ["machine__name", "case__name"]


@admin.register(MeasuredHead)
class MeasuredHeadAdmin(ReadOnlyAdmin):
    ordering = ["-id"]
    list_display = ["branch", "place", "revision", "trial", "observed_at"]
    list_select_related = ["branch__tree", "revision", "trial"]
    search_fields = ["branch__name", "revision__sha"]


@admin.register(FleetState)
class FleetStateAdmin(ReadOnlyAdmin):
    documents = ("events",)
    list_display = ["branch", "reference", "virtual", "observed", "newest_place"]
    list_select_related = ["branch__tree", "reference"]


@admin.register(Timeline)
class TimelineAdmin(ReadOnlyAdmin):
    documents = ("watch",)
    list_display = ["branch", "machine", "case", "metric", "core_type", "points_seen"]
    list_filter = ["branch", "machine"]
    list_select_related = ["branch__tree", "machine", "case__benchmark", "metric__benchmark", "core_type__machine"]
    search_fields = ["machine__name", "case__name"]


@admin.register(TimelinePoint)
class TimelinePointAdmin(ReadOnlyAdmin):
    ordering = ["-id"]
    list_select_related = ["timeline__case__benchmark", "timeline__metric__benchmark", "timeline__core_type__machine"]
    documents = ("timeline__watch",)
    list_display = ["timeline", "place", "ratio", "ratio_low", "ratio_high"]
    search_fields = ["timeline__machine__name", "timeline__case__name"]


@admin.register(ChangePoint)
class ChangePointAdmin(ReadOnlyAdmin):
    list_select_related = [
        "timeline__case__benchmark",
        "timeline__metric__benchmark",
        "timeline__core_type__machine",
        "finding__series",
        "finding__branch__tree",
    ]
    documents = ("timeline__watch", "finding__gaps", "finding__explanations", "finding__counters", "finding__checks")
    list_display = ["timeline", "place", "effect", "score", "state", "finding"]
    list_filter = ["state"]
    search_fields = ["timeline__machine__name", "timeline__case__name"]


@admin.register(FindingTrial)
class FindingTrialAdmin(ReadOnlyAdmin):
    ordering = ["-id"]
    list_display = ["finding", "trial"]
    list_select_related = ["finding__series", "finding__branch__tree", "trial"]
    documents = ("finding__gaps", "finding__explanations", "finding__counters", "finding__checks")
    search_fields = ["=finding__id", "trial__key"]


@admin.register(Recomputation)
class RecomputationAdmin(ReadOnlyAdmin):
    list_display = ["id", "code", "begun_at", "ended_at"]
    search_fields = ["code"]


@admin.register(RecomputationChunk)
class RecomputationChunkAdmin(ReadOnlyAdmin):
    documents = ("differences", "errors", "rest")
    ordering = ["-id"]
    list_display = ["recomputation", "kind", "first", "last", "taken", "size", "found", "tries", "moved_at", "done_at"]
    list_filter = ["kind"]
    list_select_related = ["recomputation"]
    search_fields = ["=recomputation__id"]
    # As large as all timelines of a branch, and for no person.
    exclude = ["rest"]
