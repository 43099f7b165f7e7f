"""Mails without what they hold; that is at `messages/ID/raw/` of the pages."""

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from server.sources.models import Message
from server.sources.series.lookup import series_of


class MessageOut(serializers.ModelSerializer[Message]):
    list = serializers.CharField(source="mailing_list.name")

    class Meta:
        model = Message
        fields = ["id", "message_id", "list", "kind", "reason", "subject", "sender_name", "sent_at", "received_at"]


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
