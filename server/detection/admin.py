from django.contrib import admin

from server.core.admin import PartsInline, ReadOnlyAdmin
from server.detection.models import Comparison, Finding, FindingVerdict


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
class FindingAdmin(ReadOnlyAdmin):
    list_display = ["id", "series", "kind", "headline", "virtual", "state", "state_since"]
    list_filter = ["state", "kind", "virtual"]
    list_select_related = ["series"]
    search_fields = ["headline", "series__subject", "=trace"]
    inlines = [FindingVerdictInline]


@admin.register(FindingVerdict)
class FindingVerdictAdmin(ReadOnlyAdmin):
    list_display = ["finding", "uarch", "verdict", "mde", "reason"]
    list_filter = ["verdict", "uarch"]
    list_select_related = ["finding__series", "uarch"]
    search_fields = ["finding__series__subject", "uarch__name"]
