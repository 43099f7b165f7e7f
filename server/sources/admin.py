from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from server.core.admin import KeptAdmin, PartsInline, ReadOnlyAdmin, each
from server.sources.models import Branch, Epoch, MailingList, Message, Patch, Revision, Series, Tree
from server.sources.series import approve_series

_WATCHER_FACTS = ["polled_at", "failing_since", "last_error"]


class BranchInline(PartsInline):
    model = Branch
    readonly_fields = ["head", "head_at"]


@admin.register(Tree)
class TreeAdmin(KeptAdmin):
    list_display = ["name", "url", "enabled", "polled_at", "failing_since"]
    list_filter = ["enabled"]
    search_fields = ["name", "url"]
    readonly_fields = _WATCHER_FACTS
    inlines = [BranchInline]


@admin.register(MailingList)
class MailingListAdmin(KeptAdmin):
    list_display = ["name", "url", "enabled", "moderated", "polled_at", "failing_since"]
    list_filter = ["enabled", "moderated"]
    search_fields = ["name", "url", "address"]
    readonly_fields = _WATCHER_FACTS


@admin.register(Epoch)
class EpochAdmin(ReadOnlyAdmin):
    list_display = ["mailing_list", "number", "last_commit"]
    list_filter = ["mailing_list"]
    list_select_related = ["mailing_list"]


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    list_display = ["sha", "tree", "subject", "author", "committed_at"]
    list_filter = ["tree"]
    list_select_related = ["tree"]
    search_fields = ["sha", "tree_sha", "subject"]


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ["message_id", "mailing_list", "kind", "subject", "sender_address", "received_at", "reason"]
    list_filter = ["kind", "mailing_list"]
    list_select_related = ["mailing_list"]
    search_fields = ["message_id", "subject", "sender_address"]
    readonly_fields = ["text"]

    @admin.display(description="As it arrived")
    def text(self, message: Message) -> str:
        return bytes(message.raw).decode("utf-8", "backslashreplace")


class PatchInline(PartsInline):
    model = Patch
    readonly_fields = ["index", "subject", "message", "revision"]


@admin.register(Series)
class SeriesAdmin(ReadOnlyAdmin):
    list_display = ["id", "subject", "version", "author_address", "mailing_list", "state", "reason", "state_since"]
    list_display_links = ["id", "subject"]
    list_filter = ["state", "mailing_list"]
    list_select_related = ["mailing_list"]
    search_fields = ["subject", "author_address", "root_message_id", "change_id", "=trace"]
    inlines = [PatchInline]
    actions = ["approve"]

    def has_approve_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sources.change_series")

    @admin.action(description="Approve: a held series may run", permissions=["approve"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Series]) -> None:
        reason = f"approved by {request.user}"
        each(self, request, queryset, lambda series: approve_series(series=series, reason=reason))


@admin.register(Patch)
class PatchAdmin(ReadOnlyAdmin):
    list_display = ["series", "index", "subject", "revision"]
    list_select_related = ["series", "revision"]
    search_fields = ["subject", "message__message_id", "revision__sha"]
