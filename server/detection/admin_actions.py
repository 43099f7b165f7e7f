"""What people decide about findings in the admin: chosen rows, a reason, and their name in the history."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import PlainAdmin, each
from server.detection.lifecycle.accepting import accept, withdraw_acceptance
from server.detection.lifecycle.invalidating import Why, invalidate
from server.detection.lifecycle.reopening import reopen
from server.detection.models import Acceptance, Finding


class ReasonForm(ActionForm):
    """Stands beside the choice of the action; a decision without a reason is refused where it is carried out."""

    reason = forms.CharField(required=False, max_length=500, label="Reason (shown to everybody):")


def _told(request: HttpRequest) -> tuple[str, str]:
    return request.user.get_username(), request.POST.get("reason", "").replace("\0", "")


class FindingActions(PlainAdmin):
    action_form = ReasonForm
    actions = ["accept_all", "invalidate_noise", "invalidate_layout", "invalidate_machine", "reopen"]

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("detection.change_finding")

    @admin.action(description="Accept all that regressed, without an end", permissions=["decide"])
    def accept_all(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda finding: accept(finding, actor=actor, reason=reason))

    @admin.action(description="Open again: it is not mended", permissions=["decide"])
    def reopen(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda finding: reopen(finding, actor=actor, reason=reason))

    @admin.action(description="Withdraw: it was noise", permissions=["decide"])
    def invalidate_noise(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.NOISE))

    @admin.action(description="Withdraw: only how code is placed", permissions=["decide"])
    def invalidate_layout(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.LAYOUT))

    @admin.action(description="Withdraw: it was the machine", permissions=["decide"])
    def invalidate_machine(self, request: HttpRequest, queryset: "QuerySet[Finding]") -> None:
        each(self, request, queryset, _withdraw(request, Why.MACHINE))


class AcceptanceActions(PlainAdmin):
    action_form = ReasonForm
    actions = ["withdraw"]

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("detection.change_finding")

    @admin.action(description="Take back: it is not accepted any more", permissions=["decide"])
    def withdraw(self, request: HttpRequest, queryset: "QuerySet[Acceptance]") -> None:
        actor, reason = _told(request)
        each(self, request, queryset, lambda line: withdraw_acceptance(line, actor=actor, reason=reason))


def _withdraw(request: HttpRequest, why: Why) -> Callable[[Any], object]:
    actor, reason = _told(request)
    return lambda finding: invalidate(finding, actor=actor, why=why, reason=reason)
