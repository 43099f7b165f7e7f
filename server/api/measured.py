"""The measurements of a boot as its agent sends them: the form that they have, looked at quickly."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from server.api.parsers import BodyForm


@extend_schema_field({"type": "array", "items": {"type": "number"}, "maxItems": 100_000})
class NumbersField(serializers.Field[Any, Any, Any, Any]):
    """A list of numbers, looked at in one go: a boot has a hundred thousand."""

    LIMIT = 100_000

    def to_internal_value(self, data: Any) -> list[float]:
        if not isinstance(data, list) or not set(map(type, data)) <= {int, float}:
            raise serializers.ValidationError("not a list of numbers")
        if len(data) > self.LIMIT:
            raise serializers.ValidationError(f"more than {self.LIMIT} numbers")
        try:
            return list(map(float, data))
        except OverflowError:
            raise serializers.ValidationError("a number is too large") from None

    def to_representation(self, value: Any) -> Any:
        return value


class ValuesIn(BodyForm):
    benchmark = serializers.CharField(max_length=60)
    version = serializers.CharField(max_length=64)
    case = serializers.CharField(max_length=60)
    metric = serializers.CharField(max_length=60)
    core_type = serializers.CharField(max_length=60, default="all")
    values = NumbersField()
    warmup = serializers.IntegerField(min_value=0)


class BoundedList(serializers.ListField):
    """A list that is too long is refused before anything in it is looked at, which costs far more than to send it."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            raise serializers.ValidationError(f"more than {self.max_length} items")
        return super().to_internal_value(data)


class MeasurementsField(BoundedList):
    """What a boot measured. Far more than any boot is kept of is refused before each number is looked at."""

    LIMIT = 500_000

    def to_internal_value(self, data: Any) -> Any:
        lists = [item.get("values") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        if sum(len(values) for values in lists if isinstance(values, list)) > self.LIMIT:
            raise serializers.ValidationError(f"more than {self.LIMIT} values")
        if isinstance(data, list) and len(data) <= (self.max_length or 0) and all(map(_is_plain, data)):
            # As agents send them. The form takes most of a request's time, and is here to say what is wrong.
            return [{"core_type": "all", **item, "values": list(map(float, item["values"]))} for item in data]
        return super().to_internal_value(data)


_NAMES_OF_VALUES = {"benchmark": 60, "version": 64, "case": 60, "metric": 60, "core_type": 60}
_FIELDS_OF_VALUES = frozenset({*_NAMES_OF_VALUES, "values", "warmup"})
# Integers up to here are floats, too.
_LARGEST = 2**53


def _is_plain(item: Any) -> bool:
    """Whether `ValuesIn` would take it as it stands."""
    if not isinstance(item, dict) or not _FIELDS_OF_VALUES - {"core_type"} <= item.keys() <= _FIELDS_OF_VALUES:
        return False
    for name, longest in _NAMES_OF_VALUES.items():
        text = item.get(name, "all")
        if not isinstance(text, str) or not 0 < len(text) <= longest or text != text.strip():
            return False
    values, warmup = item["values"], item["warmup"]
    if type(warmup) is not int or warmup < 0 or not isinstance(values, list) or len(values) > NumbersField.LIMIT:
        return False
    kinds = set(map(type, values))
    return kinds <= {float} or (kinds <= {float, int} and max(map(abs, values)) <= _LARGEST)
