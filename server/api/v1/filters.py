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

from server.detection.models import Finding
from server.sources.models import MailingList, Series, SeriesState
from server.sources.series.as_json import holding

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
