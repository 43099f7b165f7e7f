"""What lists can be narrowed by. Parameters appear in the OpenAPI description."""

from datetime import MINYEAR, UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from server.detection.models import Finding
from server.lab.models import Machine
from server.sources.models import Series, SeriesState
from server.sources.series.as_json import holding


class Filters(filters.FilterSet):  # type: ignore[misc]  # django-filter has no types
    pass


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
    list = filters.CharFilter(field_name="mailing_list__name")
    message_id = filters.CharFilter(method="by_message_id", label="of the first mail or of any patch")
    change_id = filters.CharFilter()
    author = filters.CharFilter(field_name="author_address", lookup_expr="iexact")
    base_certain = filters.BooleanFilter(label="whether the mails themselves tell the base")
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
    series = filters.NumberFilter(field_name="series_id")
    uarch = filters.CharFilter(field_name="verdicts__uarch__name")

    class Meta:
        model = Finding
        fields: tuple[str, ...] = ()


class MachineFilter(Filters):
    uarch = filters.CharFilter(field_name="uarch__name")
    virtual = filters.BooleanFilter()
    enabled = filters.BooleanFilter()

    class Meta:
        model = Machine
        fields: tuple[str, ...] = ()
