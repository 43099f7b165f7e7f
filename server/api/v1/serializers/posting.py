"""Parts of a series: its patches, senders, states and other versions."""

from typing import Any

from rest_framework import serializers

from server.api.v1.serializers.common import AuthorOut
from server.core.models import Transition
from server.sources.models import Patch, Series


class DiffstatOut(serializers.Serializer[Any]):
    files = serializers.IntegerField()
    insertions = serializers.IntegerField(help_text="lines")
    deletions = serializers.IntegerField()


# Of one patch; those that touch more say so by `diffstat.files`.
MOST_PATHS = 100
# In the answer about a series; `patches/` below it has pages of all.
MOST_PATCHES = 200
# A robot posts one subject every day.
MOST_OLDER = 100
MOST_STEPS = 500


class PatchOut(serializers.ModelSerializer[Patch]):
    # The context's patches are read with `first_paths`.
    message_id = serializers.CharField(source="message.message_id")
    message = serializers.IntegerField(source="message_id", help_text="Its mail, in `messages/`.")
    author = AuthorOut(source="*")
    commit = serializers.CharField(source="revision.sha", default=None, allow_null=True)
    diffstat = DiffstatOut(source="*")
    paths = serializers.ListField(
        child=serializers.CharField(), source="first_paths", help_text=f"Old and new names, the first {MOST_PATHS}."
    )

    class Meta:
        model = Patch
        fields = [
            "index",
            "subject",
            "message_id",
            "message",
            "author",
            "diffstat",
            "paths",
            "trailers",
            "patch_id",
            "commit",
        ]


class SeriesPatchesOut(serializers.Serializer[Any]):
    """Patches of a series in their order."""

    series = serializers.IntegerField()
    next = serializers.URLField(allow_null=True, help_text="The next page of `patches`.")
    previous = serializers.URLField(allow_null=True)
    patches = PatchOut(many=True)


class SenderOut(serializers.Serializer[Any]):
    """One address that sent mails of the series."""

    address = serializers.CharField()
    name = serializers.CharField()
    mails = serializers.IntegerField()
    proved = serializers.BooleanField(allow_null=True, help_text="null: not checked yet")
    proofs = serializers.ListField(
        child=serializers.CharField(), help_text="What proved the sender, or why nothing did."
    )


class TransitionOut(serializers.ModelSerializer[Transition]):
    state = serializers.CharField(source="after")

    class Meta:
        model = Transition
        fields = ["state", "reason", "at"]


class VersionOut(serializers.ModelSerializer[Series]):
    message_id = serializers.CharField(source="first_message_id")

    class Meta:
        model = Series
        fields = ["id", "version", "minor", "message_id", "state"]
