from django.contrib import admin

from server.core.admin import KeptAdmin, ReadOnlyAdmin
from server.results.models import Benchmark, Case, Measurement, Metric


@admin.register(Benchmark)
class BenchmarkAdmin(ReadOnlyAdmin):
    list_display = ["name", "title", "version"]
    search_fields = ["name", "title"]


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


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin):
    list_display = ["id", "boot_number", "case", "metric", "core_type", "values", "warmup", "recorded_at"]
    list_filter = ["case__benchmark", "case"]
    list_select_related = ["case__benchmark", "metric__benchmark", "core_type__machine"]
    search_fields = ["=boot__id", "=boot__session__id"]

    @admin.display(description="boot")
    def boot_number(self, measurement: Measurement) -> str:
        return f"boot {measurement.boot_id}"
