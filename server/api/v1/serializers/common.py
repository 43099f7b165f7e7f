"""What several answers share."""

from typing import Any

from rest_framework import serializers

from server.lab.models import Session
from server.sources.models import Revision


class ProblemOut(serializers.Serializer[Any]):
    """Every error: application/problem+json."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="A stable word for programs.")
    errors = serializers.JSONField(  # type: ignore[assignment]  # the answer's name; `.errors` of this form is not used
        required=False, help_text="For code `invalid`: what is wrong with each parameter."
    )


class VirtualOut(serializers.Serializer[Any]):
    """Figures of virtual machines are marked wherever they stand; they are never evidence."""

    virtual = serializers.SerializerMethodField()
    evidence = serializers.SerializerMethodField()

    def get_virtual(self, row: Any) -> bool:
        # A queryset adds `seen_virtual` where the probe of a boot can contradict what a machine is said to be.
        return bool(row.virtual or getattr(row, "seen_virtual", False))

    def get_evidence(self, row: Any) -> bool:
        return not self.get_virtual(row)


class AuthorOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="author_name")
    address = serializers.CharField(source="author_address")


class RevisionOut(serializers.ModelSerializer[Revision]):
    tree = serializers.CharField(source="tree.name")

    class Meta:
        model = Revision
        fields = ["sha", "tree", "tree_sha", "subject", "committed_at"]


class SessionBriefOut(VirtualOut, serializers.ModelSerializer[Session]):
    machine = serializers.CharField(source="machine.name")
    uarch = serializers.CharField(source="machine.uarch.name")
    clock = serializers.CharField(source="machine.clock")

    class Meta:
        model = Session
        fields = [
            "id",
            "purpose",
            "series",
            "machine",
            "uarch",
            "virtual",
            "evidence",
            "clock",
            "state",
            "reason",
            "state_since",
            "created_at",
            "trace",
        ]

    def get_virtual(self, row: Session) -> bool:
        return bool(row.machine.virtual or getattr(row, "seen_virtual", False))
