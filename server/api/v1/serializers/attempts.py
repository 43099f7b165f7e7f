"""Attempts with Jenkins' side of them, power cycles, and what waits."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from server.lab.models import Attempt, JenkinsRun, PowerCycle


class JenkinsRunOut(serializers.ModelSerializer[JenkinsRun]):
    why = serializers.CharField(help_text="Why it waits, in Jenkins' words.")

    class Meta:
        model = JenkinsRun
        fields = ["job", "number", "node", "why", "stuck", "result", "posts", "posted_at", "seen_at"]


class AttemptOut(serializers.ModelSerializer[Attempt]):
    """Without its agent's log and the name that its host gives itself, which are the lab's own (decision 0025)."""

    builder = serializers.CharField(source="builder.name", default=None, allow_null=True)
    machine = serializers.CharField(source="machine.name", default=None, allow_null=True)
    jenkins = serializers.SerializerMethodField(help_text="Null with other dispatchers.")

    class Meta:
        model = Attempt
        fields = [
            "key",
            "build",
            "session",
            "power_cycle",
            "builder",
            "machine",
            "adapter",
            "state",
            "reason",
            "state_since",
            "created_at",
            "arrived_at",
            "lease_until",
            "deadline_at",
            "progress",
            "trace",
            "jenkins",
        ]

    @extend_schema_field(JenkinsRunOut(allow_null=True))
    def get_jenkins(self, row: Attempt) -> Any:
        run = getattr(row, "jenkins_run", None)
        return JenkinsRunOut(run).data if run else None


class PowerCycleOut(serializers.ModelSerializer[PowerCycle]):
    machine = serializers.CharField(source="machine.name")

    class Meta:
        model = PowerCycle
        fields = ["id", "machine", "state", "reason", "state_since", "created_at", "trace"]


class QueueRowOut(serializers.Serializer[Any]):
    place = serializers.IntegerField(
        help_text="From 1: of a build among all builds, of a session among those for its machine."
    )
    kind = serializers.ChoiceField(choices=["build", "session", "power-cycle"])
    id = serializers.IntegerField()
    title = serializers.CharField()
    series = serializers.IntegerField(source="series_id", allow_null=True)
    tree = serializers.CharField(help_text="Empty where no tree asked for it.")
    machine = serializers.CharField(help_text="Empty for a build.")
    since = serializers.DateTimeField()
    deadline = serializers.DateTimeField(allow_null=True)
    why = serializers.CharField(help_text="Why it waits.")


class QueueOut(serializers.Serializer[Any]):
    """What waits for builders and machines, in the order in which it will go."""

    total = serializers.IntegerField(help_text="How many wait; `rows` has the first of them.")
    rows = QueueRowOut(many=True)
