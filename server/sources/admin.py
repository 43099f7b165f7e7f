"""The page of the admin for whose patches may run.

Its rows may be deleted: nothing refers to them, and Django's log keeps who changed what and when.
"""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from server.core.addresses import without_credentials
from server.core.admin import KeptAdmin, PartsInline, PlainAdmin, ReadOnlyAdmin
from server.sources.models import (
    Branch,
    Epoch,
    HeadMove,
    MailingList,
    Message,
    Patch,
    Revision,
    Series,
    Tag,
    Thread,
    ThreadMember,
    Tree,
    TrustedSender,
    WantedRevision,
)
from server.sources.trust.series_check import check_again, held_series_of


@admin.register(TrustedSender)
class TrustedSenderAdmin(PlainAdmin):
    list_display = ["address", "note", "expires_at", "created_at"]
    search_fields = ["address", "note"]
    readonly_fields = ["created_at"]

    def save_model(self, request: HttpRequest, obj: TrustedSender, form: Any, change: bool) -> None:  # noqa: FBT001 (as Django calls it)
        super().save_model(request, obj, form, change)
        check_again(held_series_of(obj.address))


_WATCHER_FACTS = ["polled_at", "fetched_at", "failing_since", "failures", "last_error"]
_LONGEST_SHOWN = 200_000


class BranchInline(PartsInline):
    model = Branch
    readonly_fields = ["name", "head", "head_at", "deleted_at"]
    max_num = 0


@admin.register(Tree)
class TreeAdmin(KeptAdmin):
    list_display = ["name", "address", "enabled", "priority", "rebasing", "fetched_at", "failing_since"]
    list_filter = ["enabled", "rebasing"]
    search_fields = ["name", "url"]
    readonly_fields = [*_WATCHER_FACTS, "pinned", "pinned_as", "pin_problem"]
    inlines = [BranchInline]

    @admin.display(description="URL", ordering="url")
    def address(self, tree: Tree) -> str:
        return without_credentials(tree.url)


@admin.register(MailingList)
class MailingListAdmin(KeptAdmin):
    list_display = ["name", "inbox", "enabled", "proof", "moderated", "fetched_at", "failing_since"]
    list_filter = ["enabled", "proof", "moderated"]
    search_fields = ["name", "url", "address"]
    readonly_fields = _WATCHER_FACTS

    @admin.display(description="URL", ordering="url")
    def inbox(self, mailing_list: MailingList) -> str:
        return without_credentials(mailing_list.url)

    def save_model(self, request: HttpRequest, obj: MailingList, form: Any, change: bool) -> None:  # noqa: FBT001 (as Django calls it)
        super().save_model(request, obj, form, change)
        if change and "proof" in form.changed_data:
            check_again(Series.objects.filter(mailing_list=obj))


@admin.register(Epoch)
class EpochAdmin(ReadOnlyAdmin):
    list_display = ["mailing_list", "number", "last_commit", "rewritten_at"]
    list_filter = ["mailing_list"]
    list_select_related = ["mailing_list"]


@admin.register(Revision)
class RevisionAdmin(ReadOnlyAdmin):
    ordering = ["-id"]
    list_display = ["sha", "tree", "subject", "author", "committed_at"]
    list_filter = ["tree"]
    list_select_related = ["tree"]
    search_fields = ["sha", "tree_sha", "subject"]


@admin.register(HeadMove)
class HeadMoveAdmin(ReadOnlyAdmin):
    list_display = ["at", "branch", "kind", "before", "after", "decision"]
    list_filter = ["kind", "branch__tree"]
    list_select_related = ["branch__tree", "before", "after"]
    search_fields = ["branch__name", "before__sha", "after__sha", "decision"]


@admin.register(Tag)
class TagAdmin(ReadOnlyAdmin):
    list_display = ["name", "tree", "revision", "seen_at"]
    list_filter = ["tree"]
    list_select_related = ["tree", "revision"]
    search_fields = ["name", "revision__sha"]


@admin.register(WantedRevision)
class WantedRevisionAdmin(ReadOnlyAdmin):
    list_display = ["revision", "tree", "why"]
    list_filter = ["why", "tree"]
    list_select_related = ["tree", "revision"]
    search_fields = ["revision__sha", "revision__subject"]


@admin.register(Thread)
class ThreadAdmin(ReadOnlyAdmin):
    list_display = ["id", "stale"]
    list_filter = ["stale"]
    search_fields = ["=id", "messages__message_id"]


@admin.register(ThreadMember)
class ThreadMemberAdmin(ReadOnlyAdmin):
    list_display = ["name", "thread"]
    list_select_related = ["thread"]
    search_fields = ["name"]


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = [
        "message_id",
        "mailing_list",
        "kind",
        "subject",
        "sender_address",
        "authentic",
        "received_at",
        "reason",
    ]
    list_filter = ["kind", "authentic", "mailing_list"]
    list_select_related = ["mailing_list"]
    search_fields = ["message_id", "subject", "sender_address"]
    readonly_fields = ["text"]
    documents = (*Message.LONG, "trailers")

    @admin.display(description="As it arrived")
    def text(self, message: Message) -> str:
        return bytes(message.raw)[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")


class PatchInline(PartsInline):
    model = Patch
    readonly_fields = ["index", "subject", "message", "revision"]


@admin.register(Series)
class SeriesAdmin(ReadOnlyAdmin):
    list_display = ["id", "subject", "version", "author_address", "mailing_list", "state", "reason", "state_since"]
    list_display_links = ["id", "subject"]
    list_filter = ["state", "base_certain", "mailing_list"]
    list_select_related = ["mailing_list"]
    search_fields = ["subject", "author_address", "root_message_id", "change_id", "=trace"]
    inlines = [PatchInline]
    # No action that approves: it would be of whatever a series holds by then. Its page asks for what was read.
    actions = ["check_senders"]

    def view_on_site(self, series: Series) -> str:
        return reverse("series", args=[series.pk])

    def has_approve_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sources.change_series")

    @admin.action(description="Check the senders of held series again", permissions=["approve"])
    def check_senders(self, request: HttpRequest, queryset: QuerySet[Series]) -> None:
        self.message_user(request, f"{check_again(queryset)} are checked again")


@admin.register(Patch)
class PatchAdmin(ReadOnlyAdmin):
    ordering = ["-id"]
    documents = ("trailers", "series__trailers")
    list_display = ["series", "index", "subject", "revision"]
    list_select_related = ["series", "revision"]
    search_fields = ["subject", "message__message_id", "revision__sha"]
