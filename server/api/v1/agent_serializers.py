"""The forms of what agents send. Everything from the lab is checked here before a service sees it."""

import json
import math
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from server.builds.models import Artifact
from server.builds.services import ArtifactFile, BuildResult
from server.builds.storage import MAX_BYTES
from server.lab.boots import BootReport
from server.lab.hosts import HostHello
from server.results.services import Values

_HEX64 = r"^[0-9a-f]{64}$"
# big.LITTLE has two or three.
_MOST_CORE_TYPES = 16
# All cases there are have some hundred metrics; what is refused of them is noted with the boot.
_MOST_MEASUREMENTS = 8000
# A machine without the nodes or programs that cases need skips some hundreds of them, on each of its kinds of cores.
MOST_NOTES = 10_000


class Text(serializers.CharField):
    """Text off a console or out of a log."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_blank=True, trim_whitespace=False, default="", **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation(clean_text(data))


class Reason(Text):
    """Text that is cut where others are refused: a result must not be lost because there is much to say about it."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self._longest = longest

    def run_validation(self, data: Any = empty) -> Any:
        return super().run_validation(data[: self._longest] if isinstance(data, str) else data)


def clean_text(value: Any) -> Any:
    """`value` with every string in it fit for PostgreSQL: no NUL, no lone surrogate. A guest's console can hold both.

    Raises ValidationError for a number that is none: JSON's 1e999 is read as infinite.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise serializers.ValidationError({"numbers": ["a number is not finite"]})
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {clean_text(name): clean_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [clean_text(item) for item in value]
    return value


class AgentForm(serializers.Serializer[Any]):
    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(clean_text(data) if isinstance(data, dict) else data)


class ProgramIn(AgentForm):
    """Which agent process speaks, of which version, on which host."""

    agent = serializers.RegexField(r"^[A-Za-z0-9-]{8,64}$")
    version = serializers.CharField(max_length=60)
    host = serializers.CharField(max_length=200)
    boot_id = serializers.CharField(max_length=36, allow_blank=True, default="")


class ClaimIn(ProgramIn):
    """With the Jenkins build that it runs in; without one these are left out."""

    job = serializers.CharField(max_length=100, allow_blank=True, default="")
    number = serializers.IntegerField(min_value=0, max_value=2**31 - 1, allow_null=True, default=None)
    node = serializers.CharField(max_length=60, allow_blank=True, default="")
    script = serializers.CharField(max_length=64, allow_blank=True, default="")

    def place(self) -> dict[str, Any]:
        return {name: value for name, value in self.validated_data.items() if name != "version"}


class HelloIn(ProgramIn):
    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    safe = serializers.BooleanField(allow_null=True, default=None)
    key = serializers.CharField(max_length=60, allow_blank=True, default="")

    def hello(self) -> HostHello:
        data = self.validated_data
        same = {name: data[name] for name in ("boot_id", "build_id", "safe", "key")}
        return HostHello(**same, agent_version=data["version"])


class AgentIn(AgentForm):
    agent = serializers.CharField(max_length=64)


class HeartbeatIn(AgentIn):
    progress = Reason(200)
    away_seconds = serializers.IntegerField(min_value=0, max_value=3600, default=0)
    log = Text(max_length=65_536)


class EndIn(AgentIn):
    outcome = serializers.ChoiceField(["done", "failed", "stopped"])
    reason = Reason(2000)


class RenewOut(serializers.Serializer[Any]):
    renew = serializers.BooleanField()


class TokenOut(serializers.Serializer[Any]):
    token = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField()


class ReadyOut(serializers.Serializer[Any]):
    ready = serializers.BooleanField()


class ContinueOut(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, Any]:
        # `continue` is a Python keyword, so the field cannot be an attribute.
        return {"continue": serializers.BooleanField()}


class ArtifactIn(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(Artifact.Kind.choices)
    sha256 = serializers.RegexField(_HEX64)
    size = serializers.IntegerField(min_value=0, max_value=MAX_BYTES)


class BuildResultIn(AgentIn):
    outcome = serializers.ChoiceField(["built", "failed", "infrastructure"])
    reason = Reason(4000)
    seconds = serializers.FloatField(min_value=0)
    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    text_hash = serializers.RegexField(r"^([0-9a-f]{64})?$", allow_blank=True, default="")
    kernel_hash = serializers.RegexField(r"^([0-9a-f]{64})?$", allow_blank=True, default="")
    compiler_version = Text(max_length=200)
    first_error = Reason(4000)
    log_tail = Text(max_length=200_000)
    unfit = serializers.BooleanField(default=False)
    artifacts = serializers.ListField(child=ArtifactIn(), default=list, max_length=len(Artifact.Kind))

    def result(self) -> BuildResult:
        data = dict(self.validated_data)
        del data["agent"], data["unfit"]
        files = tuple(ArtifactFile(**file) for file in data.pop("artifacts"))
        return BuildResult(artifacts=files, **data)


@extend_schema_field({"type": "array", "items": {"type": "number"}, "maxItems": 100_000})
class NumbersField(serializers.Field[Any, Any, Any, Any]):
    """A list of numbers, looked at in one go: a boot has a hundred thousand."""

    LIMIT = 100_000

    def to_internal_value(self, data: Any) -> list[float]:
        if not isinstance(data, list) or not all(type(number) in (int, float) for number in data):
            raise serializers.ValidationError("not a list of numbers")
        if len(data) > self.LIMIT:
            raise serializers.ValidationError(f"more than {self.LIMIT} numbers")
        try:
            return [float(number) for number in data]
        except OverflowError:
            raise serializers.ValidationError("a number is too large") from None

    def to_representation(self, value: Any) -> Any:
        return value


class ValuesIn(serializers.Serializer[Any]):
    benchmark = serializers.CharField(max_length=60)
    version = serializers.CharField(max_length=64)
    case = serializers.CharField(max_length=60)
    metric = serializers.CharField(max_length=60)
    core_type = serializers.CharField(max_length=60, default="all")
    values = NumbersField()
    warmup = serializers.IntegerField(min_value=0)


class CoreTypeIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=60)
    # The list of a machine with thousands of CPUs in no order is long; what is kept of it is cut.
    cpus = serializers.CharField(max_length=50_000, allow_blank=True, default="")


_CORE_TYPES = serializers.ListField(child=CoreTypeIn(), max_length=_MOST_CORE_TYPES)


class FactsField(serializers.DictField):
    """What the probe saw: free in its words, but not where the service relies on it."""

    # Sixteen kinds of cores of a machine with thousands of CPUs fit, too.
    LIMIT = 2 * 1024 * 1024
    MOST_ITEMS = 20_000

    def to_internal_value(self, data: Any) -> Any:
        facts = super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))
        core_types = _CORE_TYPES.run_validation(facts.get("core_types", []))
        if not isinstance(facts.get("uarch", ""), str):
            raise serializers.ValidationError("uarch is not a string")
        return {**facts, "core_types": [dict(item) for item in core_types]}


class MeasurementsField(serializers.ListField):
    """What a boot measured. Far more than any boot is kept of is refused before each number is looked at."""

    LIMIT = 500_000

    def to_internal_value(self, data: Any) -> Any:
        lists = [item.get("values") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        if sum(len(values) for values in lists if isinstance(values, list)) > self.LIMIT:
            raise serializers.ValidationError(f"more than {self.LIMIT} values")
        return super().to_internal_value(data)


class NotesField(serializers.ListField):
    """What is to be said of cases without values. What is kept of it is less (server/lab/boots.py)."""

    LIMIT = 4 * 1024 * 1024
    MOST_ITEMS = 20 * MOST_NOTES

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))


class ConditionsField(serializers.DictField):
    """What surrounded the measurements: free in its words, bounded in its size."""

    LIMIT = 1024 * 1024
    # Samples are numbers by the ten thousand, of which each takes a few bytes here and in memory.
    MOST_ITEMS = 200_000

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))


def _within(value: Any, limit: int, most_items: int) -> Any:
    """`value` as it is. Raises ValidationError where it is longer as JSON, or holds more names, values and containers.

    Empty lists cost three bytes as JSON and twenty times as much wherever they are read again.
    """
    if len(json.dumps(value)) > limit:
        raise serializers.ValidationError(f"more than {limit} bytes of JSON")
    items, todo = 0, [value]
    while todo:
        one = todo.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        items += len(inner)
        todo += inner
    if items > most_items:
        raise serializers.ValidationError(f"more than {most_items} items of JSON")
    return value


class BootResultIn(AgentIn):
    outcome = serializers.ChoiceField(["measured", "panic", "no-boot", "timeout", "wrong-kernel", "infrastructure"])
    reason = Reason(4000)
    boot_id = serializers.RegexField(r"^[0-9a-f-]{0,36}$", allow_blank=True, default="")
    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    started_at = serializers.DateTimeField(allow_null=True, default=None)
    ended_at = serializers.DateTimeField(allow_null=True, default=None)
    facts = FactsField(default=dict)
    console_tail = Text(max_length=65_536)
    measurements = MeasurementsField(child=ValuesIn(), default=list, max_length=_MOST_MEASUREMENTS)
    notes = NotesField(child=serializers.DictField(), max_length=MOST_NOTES, default=list)
    conditions = ConditionsField(default=dict)

    def report(self) -> BootReport:
        data = {name: value for name, value in self.validated_data.items() if name not in {"agent", "measurements"}}
        return BootReport(**data)

    def measured(self) -> list[Values]:
        return [Values(**{**item, "values": tuple(item["values"])}) for item in self.validated_data["measurements"]]
