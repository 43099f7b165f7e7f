"""What lists of timelines and of questions about machines can be narrowed by."""

from django_filters import rest_framework as filters

from server.api.v1.filters import Filters
from server.detection.models import MachineQuestion, Timeline
from server.detection.models.machines import QuestionState


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
