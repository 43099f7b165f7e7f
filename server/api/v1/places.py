"""Where series and base kernels come from, and the answer for addresses that do not exist."""

from typing import Any, NoReturn

from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.v1 import watched_filters as filters
from server.api.v1.reading import PublicMixin, describe
from server.api.v1.serializers import places as out
from server.sources.models import Branch, HeadMove, MailingList, Tag, Tree, WantedRevision

_TREES = Tree.objects.prefetch_related(Prefetch("branches", Branch.objects.select_related("head")))


class TreeListView(PublicMixin, generics.ListAPIView[Tree]):
    queryset = _TREES
    serializer_class = out.TreeOut

    @describe("tree_list", out.TreeOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class TreeView(PublicMixin, generics.RetrieveAPIView[Tree]):
    queryset = _TREES
    serializer_class = out.TreeDetailOut
    lookup_field = "name"

    @describe("tree_detail", out.TreeDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class BranchListView(PublicMixin, generics.ListAPIView[Branch]):
    queryset = Branch.objects.select_related("tree", "head")
    serializer_class = out.BranchOut
    filterset_class = filters.BranchFilter

    @describe("branch_list", out.BranchOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class HeadMoveListView(PublicMixin, generics.ListAPIView[HeadMove]):
    queryset = HeadMove.objects.select_related("branch__tree", "before", "after")
    serializer_class = out.HeadMoveOut
    filterset_class = filters.HeadMoveFilter

    @describe("head_move_list", out.HeadMoveOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class WantedRevisionListView(PublicMixin, generics.ListAPIView[WantedRevision]):
    queryset = WantedRevision.objects.select_related("tree", "revision__tree")
    serializer_class = out.WantedRevisionOut
    filterset_class = filters.WantedRevisionFilter

    @describe("wanted_revision_list", out.WantedRevisionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class TagListView(PublicMixin, generics.ListAPIView[Tag]):
    queryset = Tag.objects.select_related("tree", "revision__tree")
    serializer_class = out.TagOut
    filterset_class = filters.TagFilter

    @describe("tag_list", out.TagOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MailingListListView(PublicMixin, generics.ListAPIView[MailingList]):
    queryset = MailingList.objects.select_related("tree").prefetch_related("epochs")
    serializer_class = out.ListOut

    @describe("list_list", out.ListOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


@extend_schema(exclude=True)
@api_view(["GET", "POST", "PUT", "PATCH", "DELETE"])
@authentication_classes([])
def nothing_here(_request: Request) -> NoReturn:
    """Programs get a problem they can read, not the site's page for lost people."""
    raise NotFound("There is nothing at this address. Addresses for reading end with a slash.")
