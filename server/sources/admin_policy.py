"""The page of the admin for whose patches may run.

Its rows may be deleted: nothing refers to them, and Django's log keeps who changed what and when.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from server.core.admin import PlainAdmin
from server.sources.models import TrustedSender
from server.sources.trust.checking import check_again, held_series_of


@admin.register(TrustedSender)
class TrustedSenderAdmin(PlainAdmin):
    list_display = ["address", "note", "expires_at", "created_at"]
    search_fields = ["address", "note"]
    readonly_fields = ["created_at"]

    def save_model(self, request: HttpRequest, obj: TrustedSender, form: Any, change: bool) -> None:  # noqa: FBT001 (as Django calls it)
        super().save_model(request, obj, form, change)
        check_again(held_series_of(obj.address))
