"""One published case of a series, with all that is needed to run it again."""

from typing import Any

from rest_framework import serializers

from server.api.v1.findings import ComparisonOut
from server.api.v1.public import RevisionOut
from server.builds.models import Build
from server.detection.findings.table import PublishedCase, PublishedMachine
from server.results.models import Case, Metric

FORMAT, VERSION = "tidemark-case", 1
# A fact is whatever an agent sent; a document for everyone holds short ones.
_LONGEST_FACT = 4000
_MOST_FLAGS = 1000


class CaseOut(serializers.ModelSerializer[Case]):
    benchmark = serializers.CharField(source="benchmark.name")
    version = serializers.CharField(source="benchmark.version", help_text="SHA-256 over the benchmark's files.")

    class Meta:
        model = Case
        fields = ["benchmark", "version", "name", "title", "runs", "warmup", "timeout_seconds"]


class MetricOut(serializers.ModelSerializer[Metric]):
    class Meta:
        model = Metric
        fields = ["name", "title", "unit", "better", "resolution", "exact"]


class KernelOut(serializers.ModelSerializer[Build]):
    config = serializers.CharField(source="config.name")
    toolchain = serializers.CharField(source="toolchain.name")

    class Meta:
        model = Build
        fields = ["id", "build_id", "arch", "config", "toolchain"]


class CaseMachineOut(serializers.Serializer[PublishedMachine]):
    """A machine that measured the case; the facts are those of its first measured boot."""

    name = serializers.CharField()
    uarch = serializers.CharField()
    virtual = serializers.BooleanField()
    evidence = serializers.BooleanField()
    clock = serializers.CharField()
    session = serializers.IntegerField()
    base = KernelOut(source="base_build")
    patched = KernelOut(source="patched_build")
    model_name = serializers.SerializerMethodField()
    kernel_release = serializers.SerializerMethodField()
    cmdline = serializers.SerializerMethodField()
    flags = serializers.SerializerMethodField()

    def get_model_name(self, machine: PublishedMachine) -> str:
        return _text(machine, "model_name")

    def get_kernel_release(self, machine: PublishedMachine) -> str:
        return _text(machine, "kernel_release")

    def get_cmdline(self, machine: PublishedMachine) -> str:
        return _text(machine, "cmdline")

    def get_flags(self, machine: PublishedMachine) -> list[str]:
        flags = machine.facts.get("flags")
        return [str(flag)[:60] for flag in flags[:_MOST_FLAGS]] if isinstance(flags, list) else []


class SeriesCaseOut(serializers.Serializer[Any]):
    format = serializers.SerializerMethodField(help_text=FORMAT)
    version = serializers.SerializerMethodField(help_text="Grows when something is left out or means another thing.")
    series = serializers.IntegerField(source="series.pk")
    subject = serializers.CharField(source="series.subject")
    message_id = serializers.CharField(source="series.first_message_id")
    base = RevisionOut(source="series.base", allow_null=True)
    patched = RevisionOut(source="series.head", allow_null=True)
    case = CaseOut()
    metrics = MetricOut(many=True)
    machines = CaseMachineOut(many=True)
    cells = ComparisonOut(many=True)

    def get_format(self, _case: Any) -> str:
        return FORMAT

    def get_version(self, _case: Any) -> int:
        return VERSION

    def to_representation(self, instance: PublishedCase) -> dict[str, Any]:
        document = dict(super().to_representation(instance))
        # A benchmark may have changed since; the figures are of the one that was run.
        document["case"]["version"] = instance.version
        return document


def _text(machine: PublishedMachine, name: str) -> str:
    value = machine.facts.get(name)
    return value[:_LONGEST_FACT] if isinstance(value, str) else ""
