"""What people and other systems asked to be told, and each call to them."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from server.core.addresses import check_address
from server.core.states import Stateful, state_check
from server.detection.models import Finding
from server.lab.models import Microarchitecture
from server.results.models import Benchmark
from server.sources.models import Tree


class Subscription(models.Model):
    """What somebody wants to be told of, and how. What is empty narrows nothing."""

    class Way(models.TextChoices):
        MAIL = "mail", "mail"
        HOOK = "webhook", "webhook"

    class Pace(models.TextChoices):
        EACH = "each", "each finding"
        WEEKLY = "weekly", "a digest of its tree each week"

    class Claim(models.TextChoices):
        REGRESSED = "regressed", "what regressed somewhere"
        IMPROVED = "improved", "what improved somewhere"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscriptions")
    way = models.CharField(max_length=10, choices=Way.choices, default=Way.MAIL)
    pace = models.CharField(max_length=10, choices=Pace.choices, default=Pace.EACH)
    url = models.CharField(max_length=500, blank=True, validators=[check_address], help_text="Of a webhook.")
    salt = models.CharField(max_length=32, blank=True, help_text="Its secret is made of this and the site's own.")
    tree = models.ForeignKey(Tree, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    uarch = models.ForeignKey(Microarchitecture, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    benchmark = models.ForeignKey(Benchmark, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    claim = models.CharField(max_length=10, choices=Claim.choices, blank=True)
    path = models.CharField(max_length=200, blank=True, help_text="With which that of a changed file begins.")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(
                    models.Q(way="mail", url="") | (models.Q(way="webhook") & ~models.Q(url="") & ~models.Q(salt=""))
                ),
                name="subscription_has_its_way",
            ),
            models.CheckConstraint(
                condition=~models.Q(pace="weekly") | models.Q(way="mail", tree__isnull=False),
                name="subscription_digest_of_a_tree",
            ),
        ]
        indexes = [models.Index(fields=["id"], condition=models.Q(ended_at=None), name="subscription_active")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"subscription {self.pk} of {self.user.get_username()}"


class CallState(models.TextChoices):
    QUEUED = "queued", "waiting to be sent"
    SENDING = "sending", "being sent"
    SENT = "sent", "accepted"
    FAILED = "failed", "given up"


class HookCall(Stateful):
    """One document that another system is sent: a webhook's event, a check, a report for a common database.

    Committed before it is sent; its key is told with each try, so that a receiver knows one that came twice.
    """

    State = CallState

    class Target(models.TextChoices):
        WEBHOOK = "webhook", "webhook of a subscription"
        PATCHWORK = "patchwork", "check in Patchwork"
        KCIDB = "kcidb", "report to KCIDB"

    NEXT: ClassVar = {
        CallState.QUEUED: frozenset({CallState.SENDING, CallState.FAILED}),
        CallState.SENDING: frozenset({CallState.SENT, CallState.QUEUED, CallState.FAILED}),
        CallState.FAILED: frozenset({CallState.QUEUED}),
    }

    target = models.CharField(max_length=10, choices=Target.choices)
    key = models.CharField(max_length=200, unique=True, help_text="What is told once.")
    subscription = models.ForeignKey(
        Subscription, null=True, blank=True, on_delete=models.CASCADE, related_name="calls"
    )
    finding = models.ForeignKey(Finding, on_delete=models.CASCADE, related_name="calls")
    event = models.CharField(max_length=20)
    document = models.JSONField()
    tries = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    status = models.PositiveIntegerField(null=True, blank=True, help_text="Of the last answer.")

    class Meta:
        constraints = [
            state_check(CallState, "hook_call_state_known"),
            models.CheckConstraint(
                condition=models.Q(target="webhook", subscription__isnull=False)
                | (models.Q(subscription=None) & ~models.Q(target="webhook")),
                name="hook_call_has_its_target",
            ),
        ]
        indexes = [
            models.Index(fields=["state"], condition=models.Q(state__in=["queued", "sending"]), name="hook_call_open")
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.event} to {self.target}"
