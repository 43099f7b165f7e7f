"""Trees with what happened in them, and lists."""

from typing import Any

from rest_framework import serializers

from server.api.v1.serializers.common import RevisionOut
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
