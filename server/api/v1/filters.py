"""What lists can be narrowed by. Parameters appear in the OpenAPI description."""

from django.db.models import Q, QuerySet
from django_filters import rest_framework as filters

from server.detection.models import Finding
from server.lab.models import Machine
from server.sources.models import Patch, Series, SeriesState


class Filters(filters.FilterSet):  # type: ignore[misc]  # django-filter has no types
    pass


class SeriesFilter(Filters):
    state = filters.ChoiceFilter(choices=SeriesState.choices)
    list = filters.CharFilter(field_name="mailing_list__name")
    message_id = filters.CharFilter(method="by_message_id", label="of the first mail or of any patch")
    author = filters.CharFilter(field_name="author_address", lookup_expr="iexact")
    finding = filters.ChoiceFilter(field_name="finding__kind", choices=Finding.Kind.choices)

    class Meta:
        model = Series
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Series], _name: str, value: str) -> QuerySet[Series]:
        wanted = value.strip().strip("<>")
        of_a_patch = Patch.objects.filter(message__message_id=wanted).values("series")
        return queryset.filter(Q(root_message_id=wanted) | Q(pk__in=of_a_patch))


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
