"""What people do to machines and builders in the admin: chosen rows, a reason, and their name in the history."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import PlainAdmin, each
from server.lab import care
from server.lab.models import Builder, Machine

_PERMISSIONS = ["change"]
Decision = Callable[..., object]


class ReasonForm(ActionForm):
    """Stands beside the choice of the action; a decision without a reason is refused where it is carried out."""

    reason = forms.CharField(required=False, max_length=500, label="Reason (shown in the public log):")


class BuilderActions(PlainAdmin):
    action_form = ReasonForm
    actions = ["quarantine", "release", "maintain"]

    @admin.action(description="Quarantine: nothing more goes there, what runs is stopped", permissions=_PERMISSIONS)
    def quarantine(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        self._decide(request, queryset, care.quarantine)

    @admin.action(description="Release: good again", permissions=_PERMISSIONS)
    def release(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        self._decide(request, queryset, care.release)

    @admin.action(description="Take into your hands: what runs is finished first", permissions=_PERMISSIONS)
    def maintain(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        self._decide(request, queryset, care.maintain)

    def _decide(self, request: HttpRequest, hosts: "QuerySet[Machine] | QuerySet[Builder]", decide: Decision) -> None:
        actor, reason = request.user.get_username(), request.POST.get("reason", "").replace("\0", "")
        each(self, request, hosts, lambda host: decide(host, reason=reason, actor=actor))


class MachineActions(BuilderActions):
    actions = [*BuilderActions.actions, "have_checked", "power_cycle", "call_physical", "doubt"]

    @admin.action(description="Check: a health session before any other work", permissions=_PERMISSIONS)
    def have_checked(self, request: HttpRequest, queryset: "QuerySet[Machine]") -> None:
        self._decide(request, queryset, care.check)

    @admin.action(description="Switch off and on", permissions=_PERMISSIONS)
    def power_cycle(self, request: HttpRequest, queryset: "QuerySet[Machine]") -> None:
        self._decide(request, queryset, care.power_cycle)

    @admin.action(description="It is physical, on your word: what it measures is evidence", permissions=_PERMISSIONS)
    def call_physical(self, request: HttpRequest, queryset: "QuerySet[Machine]") -> None:
        self._decide(request, queryset, care.call_physical)

    @admin.action(description="Take back the word that it is physical", permissions=_PERMISSIONS)
    def doubt(self, request: HttpRequest, queryset: "QuerySet[Machine]") -> None:
        self._decide(request, queryset, care.doubt)
