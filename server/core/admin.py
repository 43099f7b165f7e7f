"""The admin is for inspection and repair. What services write is read-only there; nothing is deleted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import CharField, Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken, Begun, PersonToken, Transition, Tries

# The classes are generic for the type checker alone.
if TYPE_CHECKING:
    PlainAdmin = admin.ModelAdmin[Any]
    _Inline = admin.TabularInline[Any, Any]
else:
    PlainAdmin = admin.ModelAdmin
    _Inline = admin.TabularInline


# Two hundred pages.
_MOST_COUNTED = 10_000
_LOOKED_AT = 1000


class PartsInline(_Inline):
    """Rows shown on the page of the row they belong to."""

    extra = 0
    can_delete = False


class BeginningPaginator(Paginator):  # type: ignore[type-arg]
    """Pages of the beginning of a table. Who looks for something further down narrows or searches."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:_MOST_COUNTED].count())


class SeenValuesFilter(admin.AllValuesFieldListFilter):
    """Offers the values of the newest rows; Django's own reads the whole table for each page of it."""

    def __init__(  # noqa: PLR0917 (as Django calls it)
        self, field: Any, request: Any, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        super().__init__(field, request, params, model, model_admin, field_path)
        newest = model._default_manager.order_by("-pk").values_list(field_path, flat=True)[:_LOOKED_AT]
        found = sorted(set(newest) | {chosen for chosen in self.lookup_val or [] if chosen})
        self.lookup_choices = cast("Any", found)


admin.FieldListFilter.register(
    lambda field: isinstance(field, CharField) and not field.choices, SeenValuesFilter, take_priority=True
)


class KeptAdmin(PlainAdmin):
    """Rows that a person may add and change, but never delete: other rows speak about them."""

    list_per_page = 50
    # Counting all rows of a table that grows for years takes longer than everything else on its page.
    paginator = BeginningPaginator
    show_full_result_count = False
    # Fields too long for a list; those of rows beside it (`attempt__log`), too.
    documents: ClassVar[tuple[str, ...]] = ()

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A list names the rows; what is long is read for the page of one."""
        return super().get_queryset(request).defer(*self.documents)


class ReadOnlyAdmin(KeptAdmin):
    """Rows that services write: history, measurements, and all that moves by `advance`."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:  # noqa: ARG002
        return False


def each(page: PlainAdmin, request: HttpRequest, rows: QuerySet[Any], act: Callable[[Any], object]) -> None:
    """Do one thing to every chosen row; a row that does not allow it says why, and the others go on."""
    done = 0
    for row in rows:
        try:
            act(row)
        except DomainError as error:
            page.message_user(request, f"{row}: {error.message}", messages.ERROR)
        else:
            done += 1
    page.message_user(request, f"{done} done")


@admin.register(Transition)
class TransitionAdmin(ReadOnlyAdmin):
    list_display = ["at", "subject", "subject_id", "before", "after", "reason", "actor", "trace"]
    list_filter = ["subject", "after"]
    search_fields = ["=trace", "=subject_id", "reason", "=actor"]
    ordering = ["-id"]


class RevokeAction(PlainAdmin):
    actions = ["revoke"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"core.change_{self.model._meta.model_name}")

    @admin.action(description="Revoke: the holder is refused from now on", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        count = queryset.filter(revoked_at=None).update(revoked_at=clock.now())
        self.message_user(request, f"{count} revoked")


@admin.register(ApiToken)
class ApiTokenAdmin(RevokeAction, ReadOnlyAdmin):
    list_display = ["name", "prefix", "scope", "subject", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["scope"]
    search_fields = ["name", "prefix", "subject"]
    exclude = ["digest"]


@admin.register(PersonToken)
class PersonTokenAdmin(RevokeAction, ReadOnlyAdmin):
    list_display = ["user", "name", "prefix", "scopes", "last_used_at", "expires_at", "revoked_at"]
    list_select_related = ["user"]
    search_fields = ["user__username", "name", "prefix"]
    exclude = ["digest"]


@admin.register(Tries)
class TriesAdmin(ReadOnlyAdmin):
    list_display = ["key", "count", "since"]
    search_fields = ["key"]


@admin.register(Begun)
class BegunAdmin(ReadOnlyAdmin):
    list_display = ["key", "at", "given_up"]
    list_filter = ["given_up"]
    search_fields = ["key"]
