"""What lists of mails, branches and revisions can be narrowed by."""

from django.db.models import QuerySet
from django_filters import rest_framework as filters

from server.api.v1.filters import Filters, IdFilter, NameFilter, SinceFilter, YesOrNoFilter
from server.sources.models import Branch, HeadMove, MailingList, Message, Tag, Tree, WantedRevision


class MessageFilter(Filters):
    list = NameFilter(named=MailingList, path="mailing_list")
    message_id = filters.CharFilter(method="by_message_id", label="with or without its angle brackets")
    author = filters.CharFilter(field_name="sender_address", lookup_expr="iexact")
    kind = filters.ChoiceFilter(choices=Message.Kind.choices)
    explained = YesOrNoFilter(method="by_explained", label="whether it has a reason why it was not used")
    thread = IdFilter(field_name="thread_id")
    since = SinceFilter(field_name="received_at")

    class Meta:
        model = Message
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Message], _name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(message_id=value.strip().strip("<>"))

    def by_explained(self, queryset: QuerySet[Message], _name: str, value: bool) -> QuerySet[Message]:  # noqa: FBT001 (django-filter's signature)
        return queryset.exclude(reason="") if value else queryset.filter(reason="")


class BranchFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    deleted = YesOrNoFilter(field_name="deleted_at", lookup_expr="isnull", exclude=True)

    class Meta:
        model = Branch
        fields: tuple[str, ...] = ()


class HeadMoveFilter(Filters):
    tree = NameFilter(named=Tree, path="branch__tree")
    branch = filters.CharFilter(field_name="branch__name")
    kind = filters.ChoiceFilter(choices=HeadMove.Kind.choices)
    since = SinceFilter(field_name="at")

    class Meta:
        model = HeadMove
        fields: tuple[str, ...] = ()


class WantedRevisionFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    why = filters.ChoiceFilter(choices=WantedRevision.Why.choices)
    since = SinceFilter(field_name="created_at")

    class Meta:
        model = WantedRevision
        fields: tuple[str, ...] = ()


class TagFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    since = SinceFilter(field_name="seen_at")

    class Meta:
        model = Tag
        fields: tuple[str, ...] = ()
