from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse

from server.core.admin import KeptAdmin, PlainAdmin, ReadOnlyAdmin
from server.results.measurements import unknown_benchmarks
from server.results.models import (
    ArchivedSession,
    ArchivePart,
    Benchmark,
    BenchmarkVersion,
    Case,
    KeptMonth,
    Metric,
    PackedValues,
    Summary,
)
from server.sources.models import MeasureRule


@admin.register(Benchmark)
class BenchmarkAdmin(ReadOnlyAdmin):
    list_display = ["name", "title", "version"]
    search_fields = ["name", "title"]


@admin.register(BenchmarkVersion)
class BenchmarkVersionAdmin(ReadOnlyAdmin):
    list_display = ["benchmark", "hash"]
    list_select_related = ["benchmark"]
    search_fields = ["=benchmark__name", "hash"]


@admin.register(Case)
class CaseAdmin(KeptAdmin):
    list_display = ["name", "benchmark", "title", "runs", "warmup", "timeout_seconds", "enabled"]
    list_filter = ["benchmark", "enabled"]
    list_select_related = ["benchmark"]
    search_fields = ["name", "title"]
    readonly_fields = ["benchmark", "name"]


@admin.register(Metric)
class MetricAdmin(ReadOnlyAdmin):
    list_display = ["name", "benchmark", "title", "unit", "better", "resolution"]
    list_filter = ["benchmark"]
    list_select_related = ["benchmark"]
    search_fields = ["name", "title"]


# Measurements are a view of these, which no index orders.
@admin.register(PackedValues)
class PackedValuesAdmin(ReadOnlyAdmin):
    list_display = ["id", "boot_number", "metric", "core_type", "cases", "warmups", "ends", "values", "recorded_at"]
    list_select_related = ["metric__benchmark", "core_type__machine"]
    search_fields = ["=boot__id", "=boot__session__id"]

    @admin.display(description="boot")
    def boot_number(self, row: PackedValues) -> str:
        return f"boot {row.boot_id}"


@admin.register(Summary)
class SummaryAdmin(ReadOnlyAdmin):
    list_display = ["id", "boot_number", "metric", "core_type", "cases", "medians", "recorded_at"]
    list_select_related = ["metric__benchmark", "core_type__machine"]
    search_fields = ["=boot__id", "=boot__session__id"]

    @admin.display(description="boot")
    def boot_number(self, row: Summary) -> str:
        return f"boot {row.boot_id}"


@admin.register(ArchivePart)
class ArchivePartAdmin(ReadOnlyAdmin):
    list_display = ["kind", "month", "number", "sessions", "rows", "size", "sha256", "manifest", "created_at"]
    list_filter = ["kind"]
    search_fields = ["=sha256", "=manifest"]


@admin.register(ArchivedSession)
class ArchivedSessionAdmin(ReadOnlyAdmin):
    list_display = ["session_number", "kind", "part", "place", "left_at"]
    list_select_related = ["part"]
    search_fields = ["=session__id"]

    @admin.display(description="session")
    def session_number(self, row: ArchivedSession) -> str:
        return f"session {row.session_id}"


@admin.register(KeptMonth)
class KeptMonthAdmin(ReadOnlyAdmin):
    list_display = ["kind", "month", "held", "is_over", "looked_at"]
    list_filter = ["kind", "is_over"]


# Here, because only here it is known which benchmarks there are.
@admin.register(MeasureRule)
class MeasureRuleAdmin(PlainAdmin):
    """May be deleted: nothing refers to a rule, and Django's log keeps who changed what and when."""

    list_display = ["pattern", "benchmarks", "note", "enabled"]
    list_filter = ["enabled"]
    search_fields = ["pattern", "benchmarks", "note"]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        asked = {name for rule in MeasureRule.objects.filter(enabled=True) for name in rule.benchmarks}
        if unknown := unknown_benchmarks(sorted(asked)):
            self.message_user(request, f"no enabled case answers to {', '.join(unknown)}", messages.WARNING)
        return super().changelist_view(request, extra_context)
