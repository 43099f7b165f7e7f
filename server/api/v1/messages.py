"""Mails, with what was made of them."""

from typing import Any

from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.messages import MessageDetailOut, MessageOut
from server.api.v1.watched_filters import MessageFilter
from server.sources.models import Message


class MessageListView(PublicMixin, generics.ListAPIView[Message]):
    queryset = Message.objects.select_related("mailing_list").defer("raw", "references")
    serializer_class = MessageOut
    filterset_class = MessageFilter

    @describe("message_list", MessageOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MessageView(PublicMixin, generics.RetrieveAPIView[Message]):
    queryset = Message.objects.select_related("mailing_list").defer("raw")
    serializer_class = MessageDetailOut

    @describe("message_detail", MessageDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)
