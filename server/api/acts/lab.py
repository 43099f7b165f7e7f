"""What people decide in the lab: machines taken out of service and put back, failed builds asked for again."""

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.acts.act import Acting, ReasonIn, describe_act, filled
from server.api.permissions import person_of
from server.builds.models import Build
from server.core.models import ApiToken, PersonToken
from server.lab.care import ask_again, begin_maintenance, end_maintenance
from server.lab.hosts.enrolments import HOURS, MOST_HOURS, make_code
from server.lab.models import Host, Machine

_MAINTENANCE, _BUILDS = PersonToken.Scope.MAINTENANCE, PersonToken.Scope.BUILDS
_ENROL = PersonToken.Scope.ENROL
_SHORTEST_HOURS = 0.1


class _Truth(serializers.BooleanField):
    """Not a word or number that means one."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class MaintenanceIn(ReasonIn):
    on = _Truth(help_text="True: nothing new goes there. False: it is good again.")


class MaintenanceOut(serializers.Serializer[Any]):
    machine = serializers.CharField()
    health = serializers.ChoiceField(choices=Host.Health.choices)
    health_reason = serializers.CharField()


class MachineMaintenanceView(Acting):
    scope: ClassVar[PersonToken.Scope] = _MAINTENANCE

    @describe_act("machine_maintenance", MaintenanceIn, {200: MaintenanceOut}, _MAINTENANCE)
    def post(self, request: Request, name: str) -> Response:
        form = filled(MaintenanceIn, request)
        machine = get_object_or_404(Machine, name=name)
        (begin_maintenance if form["on"] else end_maintenance)(machine, form["reason"], actor=person_of(request).actor)
        answer = {"machine": machine.name, "health": machine.health, "health_reason": machine.health_reason}
        return Response(answer)


class EnrolmentMadeIn(ReasonIn):
    hours = serializers.FloatField(
        min_value=_SHORTEST_HOURS, max_value=MOST_HOURS, default=HOURS, help_text="How long the code is good."
    )


class EnrolmentMadeOut(serializers.Serializer[Any]):
    machine = serializers.CharField(source="host")
    code = serializers.CharField(source="text", help_text="In this answer and in no other; good once.")
    expires_at = serializers.DateTimeField(source="until")
    command = serializers.CharField(help_text="What is said on the machine, as root.")


class MachineEnrolmentView(Acting):
    scope: ClassVar[PersonToken.Scope] = _ENROL

    @describe_act("machine_enrolment", EnrolmentMadeIn, {201: EnrolmentMadeOut}, _ENROL)
    def post(self, request: Request, name: str) -> Response:
        form = filled(EnrolmentMadeIn, request)
        machine = get_object_or_404(Machine, name=name)
        actor = person_of(request).actor
        made = make_code(machine.name, ApiToken.Scope.MACHINE, actor=actor, **form)
        return Response(EnrolmentMadeOut(made).data, status=201, headers={"Cache-Control": "no-store"})


class AgainOut(serializers.Serializer[Any]):
    sessions = serializers.IntegerField(help_text="Sessions that were not booted for it, and wait for it now.")


class BuildAgainView(Acting):
    scope: ClassVar[PersonToken.Scope] = _BUILDS

    @describe_act("build_again", ReasonIn, {200: AgainOut}, _BUILDS)
    def post(self, request: Request, pk: int) -> Response:
        form = filled(ReasonIn, request)
        build = get_object_or_404(Build, pk=pk)
        return Response({"sessions": ask_again(build, form["reason"], actor=person_of(request).actor)})
