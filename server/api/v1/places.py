"""Where series and base kernels come from, and the answer for addresses that do not exist."""

from typing import Any, NoReturn

from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers.sources import ListOut, TreeOut
from server.sources.models import Branch, MailingList, Tree


class TreeListView(PublicMixin, generics.ListAPIView[Tree]):
    queryset = Tree.objects.prefetch_related(Prefetch("branches", Branch.objects.select_related("head")))
    serializer_class = TreeOut

    @describe("tree_list", TreeOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MailingListListView(PublicMixin, generics.ListAPIView[MailingList]):
    queryset = MailingList.objects.select_related("tree")
    serializer_class = ListOut

    @describe("list_list", ListOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


@extend_schema(exclude=True)
@api_view(["GET", "POST", "PUT", "PATCH", "DELETE"])
@authentication_classes([])
def nothing_here(_request: Request) -> NoReturn:
    """Programs get a problem they can read, not the site's page for lost people."""
    raise NotFound("There is nothing at this address. Addresses for reading end with a slash.")
