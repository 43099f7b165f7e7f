from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from server.api.v1.serializers.common import VirtualOut
from server.detection.models import Finding


class FindingOut(VirtualOut, serializers.ModelSerializer[Finding]):
    class Meta:
        model = Finding
        fields = [
            "id",
            "series",
            "kind",
            "state",
            "reason",
            "headline",
            "virtual",
            "evidence",
            "identical",
            "created_at",
            "trace",
        ]


class ComparisonOut(serializers.Serializer[Any]):
    """Base against patched in one cell; ratios are patched / base."""

    comparison_id = serializers.IntegerField()
    machine = serializers.CharField()
    uarch = serializers.CharField()
    clock = serializers.CharField()
    benchmark = serializers.CharField()
    case = serializers.CharField()
    metric = serializers.CharField()
    unit = serializers.CharField()
    better = serializers.CharField()
    core_type = serializers.CharField()
    verdict = serializers.CharField()
    reason = serializers.CharField()
    base_boots = serializers.IntegerField()
    base_mean = serializers.FloatField(allow_null=True)
    base_sd = serializers.FloatField(allow_null=True)
    patched_boots = serializers.IntegerField()
    patched_mean = serializers.FloatField(allow_null=True)
    patched_sd = serializers.FloatField(allow_null=True)
    ratio = serializers.FloatField(allow_null=True)
    ratio_low = serializers.FloatField(allow_null=True, help_text="95 % interval")
    ratio_high = serializers.FloatField(allow_null=True)
    p_value = serializers.FloatField(allow_null=True, help_text="t on boots")
    p_adjusted = serializers.FloatField(allow_null=True, help_text="Benjamini-Hochberg over the series' cells")
    p_rank = serializers.FloatField(allow_null=True, help_text="exact rank test on boots")
    family_size = serializers.IntegerField()
    min_effect = serializers.FloatField(help_text="Smallest change worth a verdict, as a fraction.")
    mde = serializers.FloatField(allow_null=True, help_text="Smallest change that would have been seen, as a fraction.")
    flags = serializers.ListField(child=serializers.CharField())


class ComponentOut(serializers.Serializer[Any]):
    """The verdict for one microarchitecture, and the cell that moved most there."""

    uarch = serializers.CharField()
    title = serializers.CharField()
    verdict = serializers.CharField()
    reason = serializers.CharField()
    mde = serializers.FloatField(allow_null=True)
    comparison_id = serializers.IntegerField(source="cell.comparison_id", default=None, allow_null=True)


class GapOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    uarch = serializers.CharField()
    case = serializers.CharField()
    reason = serializers.CharField()


class FindingDetailOut(FindingOut):
    # The context holds the `vector` and the `cells`; all of them are virtual when the finding is.
    gaps = GapOut(many=True, help_text="What was wanted and has no result.")
    vector = serializers.SerializerMethodField()
    comparisons = serializers.SerializerMethodField()

    class Meta(FindingOut.Meta):
        fields = [*FindingOut.Meta.fields, "gaps", "vector", "comparisons"]

    @extend_schema_field(ComponentOut(many=True))
    def get_vector(self, _finding: Finding) -> Any:
        return ComponentOut(self.context["vector"], many=True).data

    @extend_schema_field(ComparisonOut(many=True))
    def get_comparisons(self, _finding: Finding) -> Any:
        return ComparisonOut(self.context["cells"], many=True).data
