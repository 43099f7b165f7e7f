from django.contrib import admin

from server.core.admin import PartsInline, ReadOnlyAdmin
from server.detection.admin_actions import AcceptanceActions, FindingActions
from server.detection.models import (
    Acceptance,
    Bisection,
    BisectionStep,
    ChangePoint,
    Comparison,
    Finding,
    FindingVerdict,
    FleetState,
    MachineQuestion,
    MeasuredHead,
    NoiseProfile,
    Timeline,
    TimelinePoint,
)
from server.detection.noise.admin_actions import QuestionActions


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
