"""What people do to machines and builders in the admin: chosen rows, a reason, and their name in the history."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import KeptAdmin, PartsInline, PlainAdmin, ReadOnlyAdmin, each
from server.lab import care
from server.lab.models import (
    Asker,
    Attempt,
    Boot,
    BootStart,
    Builder,
    Canary,
    Conditions,
    CoreType,
    Enrolment,
    Facts,
    Machine,
    MachineFacts,
    Microarchitecture,
    PowerCycle,
    RoundMark,
    Session,
    Trial,
)

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


@admin.register(Microarchitecture)
class MicroarchitectureAdmin(KeptAdmin):
    list_display = ["name", "arch", "title"]
    list_filter = ["arch"]
    search_fields = ["name", "title"]


class CoreTypeInline(PartsInline):
    model = CoreType


# What services write: the host's state, and its health, which changes by actions that name a person and a reason.
_HOST_FACTS = [
    "state",
    "state_reason",
    "state_since",
    "health",
    "health_reason",
    "health_since",
    "last_seen_at",
]


# Whether what it measures is evidence: by its registration, probes, and actions that name a person.
_KIND = ["virtual", "proved_virtual", "doubts", "physical_by", "physical_at", "physical_reason"]


@admin.register(Machine)
class MachineAdmin(MachineActions, KeptAdmin):
    list_display = ["name", "uarch", "enabled", "state", "health", "virtual", "clock", "boot_driver", "last_seen_at"]
    list_filter = ["enabled", "state", "health", "virtual", "clock", "boot_driver"]
    list_select_related = ["uarch"]
    search_fields = ["name", "uarch__name"]
    readonly_fields = [*_HOST_FACTS, "health_hold", "boot_id", "safe", *_KIND]
    raw_id_fields = ["health_build"]
    inlines = [CoreTypeInline]


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = ["id", "machine", "purpose", "series", "state", "reason", "state_since"]
    list_filter = ["state", "purpose", "machine"]
    list_select_related = ["machine", "series"]
    search_fields = ["series__subject", "machine__name", "=trace"]


@admin.register(Boot)
class BootAdmin(ReadOnlyAdmin):
    documents = ("notes",)
    list_display = ["id", "session_number", "position", "arm", "state", "reason", "boot_id", "build_id"]
    list_filter = ["state", "arm"]
    search_fields = ["boot_id", "build_id", "=trace"]

    @admin.display(description="session")
    def session_number(self, boot: Boot) -> str:
        return f"session {boot.session_id}"


@admin.register(Canary)
class CanaryAdmin(ReadOnlyAdmin):
    """Its settings are those of the site file."""

    list_display = ["tree", "machine", "enabled", "stage", "stage_since", "failing_since", "passed_at"]
    list_select_related = ["tree", "machine"]
    search_fields = ["machine__name", "detail"]


@admin.register(Facts)
class FactsAdmin(ReadOnlyAdmin):
    documents = ("document",)
    list_display = ["sha256", "virtual", "fingerprint"]
    list_filter = ["virtual"]
    search_fields = ["sha256", "fingerprint"]


@admin.register(MachineFacts)
class MachineFactsAdmin(ReadOnlyAdmin):
    documents = ("document",)
    list_display = ["machine"]
    list_select_related = ["machine"]
    search_fields = ["machine__name"]


@admin.register(Conditions)
class ConditionsAdmin(ReadOnlyAdmin):
    list_display = ["boot_id"]
    search_fields = ["=boot__id", "=boot__session__id"]
    documents = ("document", "facts", "console_tail")


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    list_display = ["key", "adapter", "machine", "builder", "state", "reason", "lease_until", "progress"]
    documents = ("log",)
    list_filter = ["state", "adapter", "machine", "builder"]
    list_select_related = ["machine", "builder"]
    search_fields = ["key", "agent", "=trace"]
    ordering = ["-id"]


@admin.register(Builder)
class BuilderAdmin(BuilderActions, KeptAdmin):
    list_display = ["name", "enabled", "state", "health", "capacity", "last_seen_at"]
    list_filter = ["enabled", "health", "state"]
    search_fields = ["name"]
    readonly_fields = _HOST_FACTS


@admin.register(PowerCycle)
class PowerCycleAdmin(ReadOnlyAdmin):
    list_display = ["id", "machine", "state", "reason", "state_since"]
    list_filter = ["state", "machine"]
    list_select_related = ["machine"]
    search_fields = ["machine__name", "=trace"]


@admin.register(Asker)
class AskerAdmin(ReadOnlyAdmin):
    list_display = ["subject", "scope", "asked_at", "host", "agent_version", "keys"]
    list_filter = ["scope"]
    search_fields = ["subject", "host"]


@admin.register(Enrolment)
class EnrolmentAdmin(ReadOnlyAdmin):
    list_display = ["subject", "scope", "made_by", "created_at", "expires_at", "used_at", "host", "used_from"]
    list_filter = ["scope"]
    search_fields = ["subject", "host"]


@admin.register(RoundMark)
class RoundMarkAdmin(ReadOnlyAdmin):
    list_display = ["adapter", "last_at"]


@admin.register(Trial)
class TrialAdmin(ReadOnlyAdmin):
    list_display = ["key", "purpose", "series", "state", "reason", "state_since"]
    list_filter = ["state", "purpose"]
    list_select_related = ["series"]
    search_fields = ["key", "series__subject", "=trace"]


@admin.register(BootStart)
class BootStartAdmin(ReadOnlyAdmin):
    documents = ("boot__notes", "attempt__log")
    ordering = ["-id"]
    list_display = ["boot", "attempt", "at"]
    list_select_related = ["boot", "attempt"]
    search_fields = ["=boot__id", "attempt__key"]
