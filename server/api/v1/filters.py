"""What lists can be narrowed by. Parameters appear in the OpenAPI description."""

from datetime import MINYEAR, UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db.models import Model, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field

from server.builds.models import Build, BuildState, KernelConfig, Toolchain
from server.detection.models import Finding, MachineQuestion, Timeline
from server.detection.models.timeline import QuestionState
from server.lab.models import (
    Attempt,
    AttemptState,
    Builder,
    Host,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
)
from server.sources.models import Branch, HeadMove, MailingList, Message, Series, SeriesState, Tag, Tree, WantedRevision
from server.sources.series.requests import holding

_ANSWERS = {"": None, "true": True, "1": True, "false": False, "0": False}


class Filters(filters.FilterSet):  # type: ignore[misc]  # django-filter has no types
    pass


class _YesOrNo(forms.Field):
    """Django takes every word that it does not know for "not asked": a misspelt one would answer with all rows."""

    def to_python(self, value: object) -> bool | None:
        word = str(value).strip().lower() if value is not None else ""
        if word not in _ANSWERS:
            raise ValidationError("Write true or false, not %(word)s.", params={"word": word[:40]})
        return _ANSWERS[word]


class YesOrNoFilter(filters.BooleanFilter):  # type: ignore[misc]  # django-filter has no types
    field_class = _YesOrNo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The usual widget for such a field gives unknown words up before the field sees them.
        kwargs.setdefault("widget", forms.TextInput)
        super().__init__(*args, **kwargs)


@extend_schema_field(OpenApiTypes.INT)
class IdFilter(filters.NumberFilter):  # type: ignore[misc]  # django-filter has no types
    """The id of a row: a whole number. A database would round any other."""

    field_class = forms.IntegerField


class NameFilter(filters.CharFilter):  # type: ignore[misc]  # django-filter has no types
    """The name of a row that others refer to. `path` is the reference, and then the name's own field.

    The row is looked for first: what refers to it is then found by an index, and for a name that nobody has nothing is
    read, where a join would read everything.
    """

    def __init__(self, *args: Any, named: type[Model], path: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._named, self._path = named, path

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value in EMPTY_VALUES:
            return qs
        found = list(self._named._default_manager.filter(name=value).values_list("pk", flat=True))
        return qs.filter(**{f"{self._path}__in": found}) if found else qs.none()


class SinceFilter(filters.IsoDateTimeFilter):  # type: ignore[misc]  # django-filter has no types
    """Rows from a moment on. The database knows fewer time zones than a script can write, so it is asked in UTC."""

    def filter(self, qs: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        if value is None:
            return qs
        try:
            moment = value.astimezone(UTC)
        except OverflowError:
            # A moment next to the first or the last that can be written: all rows, or none.
            return qs if value.year == MINYEAR else qs.none()
        return qs.filter(**{f"{self.field_name}__gte": moment})


class SeriesFilter(Filters):
    state = filters.ChoiceFilter(choices=SeriesState.choices)
    list = NameFilter(named=MailingList, path="mailing_list")
    message_id = filters.CharFilter(method="by_message_id", label="of the first mail or of any patch")
    change_id = filters.CharFilter()
    author = filters.CharFilter(field_name="author_address", lookup_expr="iexact")
    base_certain = YesOrNoFilter(label="whether the mails themselves tell the base")
    since = SinceFilter(field_name="received_at")
    finding = filters.ChoiceFilter(field_name="finding__kind", choices=Finding.Kind.choices)

    class Meta:
        model = Series
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Series], _name: str, value: str) -> QuerySet[Series]:
        return queryset.filter(pk__in=holding(value).values("pk"))


class FindingFilter(Filters):
    kind = filters.ChoiceFilter(choices=Finding.Kind.choices)
    state = filters.ChoiceFilter(choices=Finding.State.choices)
    series = IdFilter(field_name="series_id")
    uarch = filters.CharFilter(field_name="verdicts__uarch__name")

    class Meta:
        model = Finding
        fields: tuple[str, ...] = ()


class HostFilter(Filters):
    enabled = YesOrNoFilter()
    state = filters.ChoiceFilter(choices=Host.State.choices)
    health = filters.ChoiceFilter(choices=Host.Health.choices)
    capability = filters.CharFilter(method="by_capability", label="one that it has")

    def by_capability(
        self, queryset: "QuerySet[Machine] | QuerySet[Builder]", _name: str, value: str
    ) -> "QuerySet[Machine] | QuerySet[Builder]":
        return queryset.filter(capabilities__contains=[value])


class MachineFilter(HostFilter):
    uarch = filters.CharFilter(field_name="uarch__name")
    virtual = YesOrNoFilter()

    class Meta:
        model = Machine
        fields: tuple[str, ...] = ()


class BuilderFilter(HostFilter):
    arch = filters.CharFilter(method="by_arch", label="that it builds for")

    class Meta:
        model = Builder
        fields: tuple[str, ...] = ()

    def by_arch(self, queryset: QuerySet[Builder], _name: str, value: str) -> QuerySet[Builder]:
        return queryset.filter(arches__contains=[value])


class BuildFilter(Filters):
    state = filters.ChoiceFilter(choices=BuildState.choices)
    tree = NameFilter(named=Tree, path="revision__tree")
    sha = filters.CharFilter(field_name="revision__sha", label="the commit, in full")
    config = NameFilter(named=KernelConfig, path="config")
    toolchain = NameFilter(named=Toolchain, path="toolchain")
    arch = filters.CharFilter()
    build_id = filters.CharFilter()
    text_hash = filters.CharFilter()
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = Build
        fields: tuple[str, ...] = ()


class SessionFilter(Filters):
    purpose = filters.ChoiceFilter(choices=Session.Purpose.choices)
    state = filters.ChoiceFilter(choices=SessionState.choices)
    series = IdFilter(field_name="series_id")
    machine = NameFilter(named=Machine, path="machine")
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = Session
        fields: tuple[str, ...] = ()


class AttemptFilter(Filters):
    state = filters.ChoiceFilter(choices=AttemptState.choices)
    active = YesOrNoFilter(method="by_active", label="whether it is not over")
    build = IdFilter(field_name="build_id")
    session = IdFilter(field_name="session_id")
    power_cycle = IdFilter(field_name="power_cycle_id")
    machine = NameFilter(named=Machine, path="machine")
    builder = NameFilter(named=Builder, path="builder")
    adapter = filters.CharFilter()
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = Attempt
        fields: tuple[str, ...] = ()

    def by_active(self, queryset: QuerySet[Attempt], _name: str, value: bool) -> QuerySet[Attempt]:  # noqa: FBT001 (django-filter calls it so)
        return queryset.filter(state__in=Attempt.ACTIVE) if value else queryset.exclude(state__in=Attempt.ACTIVE)


class PowerCycleFilter(Filters):
    state = filters.ChoiceFilter(choices=PowerCycleState.choices)
    machine = NameFilter(named=Machine, path="machine")
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = PowerCycle
        fields: tuple[str, ...] = ()


class TimelineFilter(Filters):
    tree = filters.CharFilter(field_name="branch__tree__name")
    branch = filters.CharFilter(field_name="branch__name")
    machine = filters.CharFilter(field_name="machine__name")
    uarch = filters.CharFilter(field_name="machine__uarch__name")
    benchmark = filters.CharFilter(field_name="case__benchmark__name")
    case = filters.CharFilter(field_name="case__name")
    metric = filters.CharFilter(field_name="metric__name")

    class Meta:
        model = Timeline
        fields: tuple[str, ...] = ()


class QuestionFilter(Filters):
    machine = filters.CharFilter(field_name="machine__name")
    kind = filters.ChoiceFilter(choices=MachineQuestion.Kind.choices)
    state = filters.ChoiceFilter(choices=QuestionState.choices)

    class Meta:
        model = MachineQuestion
        fields: tuple[str, ...] = ()


class MessageFilter(Filters):
    list = NameFilter(named=MailingList, path="mailing_list")
    message_id = filters.CharFilter(method="by_message_id", label="with or without its angle brackets")
    author = filters.CharFilter(field_name="sender_address", lookup_expr="iexact")
    kind = filters.ChoiceFilter(choices=Message.Kind.choices)
    explained = YesOrNoFilter(method="by_explained", label="whether it has a reason why it was not used")
    thread = IdFilter(field_name="thread_id")
    since = SinceFilter(field_name="received_at")

    class Meta:
        model = Message
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Message], _name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(message_id=value.strip().strip("<>"))

    def by_explained(self, queryset: QuerySet[Message], _name: str, value: bool) -> QuerySet[Message]:  # noqa: FBT001 (django-filter's signature)
        return queryset.exclude(reason_code="") if value else queryset.filter(reason_code="")


class BranchFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    deleted = YesOrNoFilter(field_name="deleted_at", lookup_expr="isnull", exclude=True)

    class Meta:
        model = Branch
        fields: tuple[str, ...] = ()


class HeadMoveFilter(Filters):
    tree = NameFilter(named=Tree, path="branch__tree")
    branch = filters.CharFilter(field_name="branch__name")
    kind = filters.ChoiceFilter(choices=HeadMove.Kind.choices)
    since = SinceFilter(field_name="at")

    class Meta:
        model = HeadMove
        fields: tuple[str, ...] = ()


class WantedRevisionFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    why = filters.ChoiceFilter(choices=WantedRevision.Why.choices)
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = WantedRevision
        fields: tuple[str, ...] = ()


class TagFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    since = SinceFilter(field_name="seen_at")

    class Meta:
        model = Tag
        fields: tuple[str, ...] = ()
