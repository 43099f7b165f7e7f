"""What lists of the lab and of kernels can be narrowed by."""

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from server.api.v1.filters import Filters, IdFilter, NameFilter, SinceFilter, YesOrNoFilter
from server.builds.models import Build, BuildState, KernelConfig, Toolchain
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
from server.sources.models import Tree


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
