from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core import clock
from server.core.admin import PlainAdmin, ReadOnlyAdmin, each
from server.reports.models import (
    Bounce,
    Delivery,
    HookCall,
    MailCommand,
    MailStop,
    OptOut,
    ReadingMark,
    Report,
    RestingAddress,
    ReturnedMail,
    Subscription,
)
from server.reports.moderation import approve_report, reject_report


@admin.register(Report)
class ReportAdmin(ReadOnlyAdmin):
    documents = ("body", "references", "to", "cc")
    list_display = ["id", "subject", "state", "reason", "state_since"]
    list_display_links = ["id", "subject"]
    list_filter = ["state"]
    search_fields = ["subject", "in_reply_to", "=trace"]
    actions = ["approve", "reject"]

    def has_moderate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("reports.change_report")

    @admin.action(description="Approve: queue the mail", permissions=["moderate"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Report]) -> None:
        actor = request.user.get_username()
        reason = f"approved by {actor}"
        each(self, request, queryset, lambda report: approve_report(report_id=report.pk, reason=reason, actor=actor))

    @admin.action(description="Reject: the mail is not sent", permissions=["moderate"])
    def reject(self, request: HttpRequest, queryset: QuerySet[Report]) -> None:
        actor = request.user.get_username()
        reason = f"rejected by {actor}"
        each(self, request, queryset, lambda report: reject_report(report_id=report.pk, reason=reason, actor=actor))


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    documents = ("report__body", "report__references", "report__to", "report__cc")
    list_display = ["message_id", "report", "state", "reason", "tries", "not_before", "sent_at"]
    list_filter = ["state"]
    list_select_related = ["report"]
    search_fields = ["message_id", "report__subject", "=trace"]


@admin.register(OptOut)
class OptOutAdmin(PlainAdmin):
    list_display = ["address", "created_at"]
    search_fields = ["address"]


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    list_display = ["id", "user", "way", "pace", "claim", "uarch", "tree", "benchmark", "path", "ended_at"]
    list_filter = ["way", "pace"]
    list_select_related = ["user", "uarch", "tree", "benchmark"]
    search_fields = ["=user__username"]


@admin.register(HookCall)
class HookCallAdmin(ReadOnlyAdmin):
    documents = ("document",)
    list_display = ["id", "target", "event", "finding", "state", "reason", "status", "tries", "not_before"]
    list_filter = ["state", "target"]
    search_fields = ["=trace", "key"]


@admin.register(Bounce)
class BounceAdmin(ReadOnlyAdmin):
    documents = ("said",)
    list_display = ["at", "address", "status", "permanent", "delivery"]
    list_display_links = ["at", "address"]
    list_filter = ["permanent", "status"]
    list_select_related = ["delivery"]
    search_fields = ["=address", "=delivery__trace"]


@admin.register(RestingAddress)
class RestingAddressAdmin(ReadOnlyAdmin):
    list_display = ["address", "since", "reason", "lifted_at"]
    search_fields = ["address"]
    actions = ["lift"]

    def has_moderate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("reports.change_report")

    @admin.action(description="Lift: write to the address again", permissions=["moderate"])
    def lift(self, _request: HttpRequest, queryset: QuerySet[RestingAddress]) -> None:
        queryset.filter(lifted_at=None).update(lifted_at=clock.now())


@admin.register(ReturnedMail)
class ReturnedMailAdmin(ReadOnlyAdmin):
    list_display = ["read_at", "meaning", "message"]
    list_display_links = ["read_at", "message"]
    list_filter = ["meaning"]
    list_select_related = ["message"]


@admin.register(MailCommand)
class MailCommandAdmin(ReadOnlyAdmin):
    documents = ("message__raw", "message__references", "message__recipients", "message__paths")
    list_display = ["id", "text", "sender", "role", "state", "reason", "created_at"]
    list_display_links = ["id", "text"]
    list_filter = ["state", "verb", "role"]
    search_fields = ["sender", "text", "=trace"]


@admin.register(ReadingMark)
class ReadingMarkAdmin(ReadOnlyAdmin):
    list_display = ["reader", "up_to"]


@admin.register(MailStop)
class MailStopAdmin(ReadOnlyAdmin):
    list_display = ["at", "person", "reason", "ended_at", "ended_by", "ended_because"]
    list_display_links = ["at", "person"]
