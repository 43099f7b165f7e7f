"""Mails, with what was made of them."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    IdFilter,
    NameFilter,
    SinceFilter,
    UntilFilter,
    YesOrNoFilter,
)
from server.api.formats import PlainRows
from server.api.public import PublicMixin, describe
from server.sources.models import MailingList, Message
from server.sources.series.requests import series_of

_UNTOLD = tuple(name for name in Message.LONG if name != "references")


class MessageOut(serializers.ModelSerializer[Message]):
    list = serializers.CharField(source="mailing_list.name")

    class Meta:
        model = Message
        list_serializer_class = PlainRows
        fields = [
            "id",
            "message_id",
            "list",
            "kind",
            "reason",
            "reason_code",
            "subject",
            "sender_name",
            "sent_at",
            "received_at",
        ]


class MessageDetailOut(MessageOut):
    in_series = serializers.SerializerMethodField(help_text="Ids of the series that hold it.")
    raw = serializers.SerializerMethodField(help_text="Where the mail is as it arrived; null when it was deleted.")

    class Meta(MessageOut.Meta):
        fields = [
            *MessageOut.Meta.fields,
            "sender_address",
            "authentic",
            "authenticity",
            "in_reply_to",
            "references",
            "trailers",
            "thread",
            "in_series",
            "raw",
        ]

    @extend_schema_field(serializers.ListField(child=serializers.IntegerField()))
    def get_in_series(self, message: Message) -> list[int]:
        return list(series_of(message).values_list("pk", flat=True))

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_raw(self, message: Message) -> str | None:
        return None if message.kind == Message.Kind.DELETED else reverse("message-raw", args=[message.pk])


class MessageFilter(Filters):
    list = NameFilter(named=MailingList, path="mailing_list")
    message_id = filters.CharFilter(method="by_message_id", label="with or without its angle brackets")
    author = filters.CharFilter(field_name="sender_address", lookup_expr="iexact")
    kind = filters.ChoiceFilter(choices=Message.Kind.choices)
    explained = YesOrNoFilter(method="by_explained", label="whether it has a reason why it was not used")
    thread = IdFilter(field_name="thread_id")
    since = SinceFilter(field_name="received_at")
    until = UntilFilter(field_name="received_at")

    class Meta:
        model = Message
        fields: tuple[str, ...] = ()

    def by_message_id(self, queryset: QuerySet[Message], _name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(message_id=value.strip().strip("<>"))

    def by_explained(self, queryset: QuerySet[Message], _name: str, value: bool) -> QuerySet[Message]:  # noqa: FBT001 (django-filter's signature)
        return queryset.exclude(reason_code="") if value else queryset.filter(reason_code="")


class MessageListView(PublicMixin, generics.ListAPIView[Message]):
    keeps = True
    queryset = Message.shown().select_related("mailing_list").defer(*Message.LONG)
    serializer_class = MessageOut
    filterset_class = MessageFilter

    @describe("message_list", MessageOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MessageView(PublicMixin, generics.RetrieveAPIView[Message]):
    queryset = Message.objects.select_related("mailing_list").defer(*_UNTOLD)
    serializer_class = MessageDetailOut

    @describe("message_detail", MessageDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)
