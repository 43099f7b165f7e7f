"""Where series and base kernels come from, and the answer for addresses that do not exist."""

from typing import Any, NoReturn

from django.db.models import Prefetch
from django_filters import rest_framework as filters
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from server.api.filters import (
    Filters,
    NameFilter,
    SinceFilter,
    UntilFilter,
    YesOrNoFilter,
)
from server.api.public import PublicMixin, RevisionOut, describe
from server.core.addresses import without_credentials
from server.sources.models import Branch, Epoch, HeadMove, MailingList, Tag, Tree, WantedRevision

_WATCHED = ["enabled", "polled_at", "fetched_at", "failing_since", "failures", "last_error"]


class WatchedOut(serializers.Serializer[Any]):
    """What is polled; addresses and errors without passwords. `fetched_at` is the last poll that went well."""

    url = serializers.SerializerMethodField()
    last_error = serializers.SerializerMethodField()

    def get_url(self, row: Any) -> str:
        return without_credentials(row.url)

    def get_last_error(self, row: Any) -> str:
        return without_credentials(row.last_error)


class BranchBriefOut(serializers.ModelSerializer[Branch]):
    head = serializers.CharField(source="head.sha", default=None, allow_null=True)

    class Meta:
        model = Branch
        fields = ["name", "head", "head_at", "deleted_at"]


class BranchOut(BranchBriefOut):
    tree = serializers.CharField(source="tree.name")

    class Meta(BranchBriefOut.Meta):
        fields = ["id", "tree", *BranchBriefOut.Meta.fields]


class TreeOut(WatchedOut, serializers.ModelSerializer[Tree]):
    branches = BranchBriefOut(many=True)

    class Meta:
        model = Tree
        fields = ["name", "url", *_WATCHED, "rebasing", "branches"]


class TreeDetailOut(TreeOut):
    class Meta(TreeOut.Meta):
        fields = [
            *TreeOut.Meta.fields,
            "poll_seconds",
            "branch_patterns",
            "tag_patterns",
            "priority",
            "uarchs",
            "benchmarks",
            "heads_per_day",
            "merges_by",
            "subject_tags",
            "addresses",
            "paths",
        ]


class HeadMoveOut(serializers.ModelSerializer[HeadMove]):
    tree = serializers.CharField(source="branch.tree.name")
    branch = serializers.CharField(source="branch.name")
    before = serializers.CharField(source="before.sha", default=None, allow_null=True)
    after = serializers.CharField(source="after.sha", default=None, allow_null=True)

    class Meta:
        model = HeadMove
        fields = ["id", "tree", "branch", "kind", "before", "after", "decision", "at"]


class WantedRevisionOut(serializers.ModelSerializer[WantedRevision]):
    tree = serializers.CharField(source="tree.name")
    revision = RevisionOut()

    class Meta:
        model = WantedRevision
        fields = ["id", "tree", "revision", "why", "detail", "created_at"]


class TagOut(serializers.ModelSerializer[Tag]):
    tree = serializers.CharField(source="tree.name")
    revision = RevisionOut()

    class Meta:
        model = Tag
        fields = ["id", "tree", "name", "revision", "seen_at"]


class EpochOut(serializers.ModelSerializer[Epoch]):
    class Meta:
        model = Epoch
        fields = ["number", "last_commit", "rewritten_at"]


class ListOut(WatchedOut, serializers.ModelSerializer[MailingList]):
    tree = serializers.CharField(source="tree.name", default=None, allow_null=True)
    epochs = EpochOut(many=True)

    class Meta:
        model = MailingList
        fields = ["name", "url", "address", "tree", "moderated", "proof", "since", *_WATCHED, "epochs"]


class BranchFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    deleted = YesOrNoFilter(field_name="deleted_at", lookup_expr="isnull", exclude=True)

    class Meta:
        model = Branch
        fields: tuple[str, ...] = ()


class HeadMoveFilter(Filters):
    tree = NameFilter(named=Tree, path="branch__tree")
    branch = NameFilter(named=Branch, path="branch")
    kind = filters.ChoiceFilter(choices=HeadMove.Kind.choices)
    since = SinceFilter(field_name="at")
    until = UntilFilter(field_name="at")

    class Meta:
        model = HeadMove
        fields: tuple[str, ...] = ()


class WantedRevisionFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    why = filters.ChoiceFilter(choices=WantedRevision.Why.choices)
    since = SinceFilter(field_name="created_at")
    until = UntilFilter(field_name="created_at")

    class Meta:
        model = WantedRevision
        fields: tuple[str, ...] = ()


class TagFilter(Filters):
    tree = NameFilter(named=Tree, path="tree")
    since = SinceFilter(field_name="seen_at")
    until = UntilFilter(field_name="seen_at")

    class Meta:
        model = Tag
        fields: tuple[str, ...] = ()


_TREES = Tree.objects.prefetch_related(Prefetch("branches", Branch.objects.select_related("head")))


class TreeListView(PublicMixin, generics.ListAPIView[Tree]):
    queryset = _TREES
    serializer_class = TreeOut

    @describe("tree_list", TreeOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class TreeView(PublicMixin, generics.RetrieveAPIView[Tree]):
    queryset = _TREES
    serializer_class = TreeDetailOut
    lookup_field = "name"

    @describe("tree_detail", TreeDetailOut)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.retrieve(request, *args, **kwargs)


class BranchListView(PublicMixin, generics.ListAPIView[Branch]):
    queryset = Branch.objects.select_related("tree", "head")
    serializer_class = BranchOut
    filterset_class = BranchFilter

    @describe("branch_list", BranchOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class HeadMoveListView(PublicMixin, generics.ListAPIView[HeadMove]):
    queryset = HeadMove.objects.select_related("branch__tree", "before", "after")
    serializer_class = HeadMoveOut
    filterset_class = HeadMoveFilter

    @describe("head_move_list", HeadMoveOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class WantedRevisionListView(PublicMixin, generics.ListAPIView[WantedRevision]):
    queryset = WantedRevision.objects.select_related("tree", "revision__tree")
    serializer_class = WantedRevisionOut
    filterset_class = WantedRevisionFilter

    @describe("wanted_revision_list", WantedRevisionOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class TagListView(PublicMixin, generics.ListAPIView[Tag]):
    queryset = Tag.objects.select_related("tree", "revision__tree")
    serializer_class = TagOut
    filterset_class = TagFilter

    @describe("tag_list", TagOut(many=True))
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request, *args, **kwargs)


class MailingListListView(PublicMixin, generics.ListAPIView[MailingList]):
    queryset = MailingList.shown().select_related("tree").prefetch_related("epochs")
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
