"""What is told: a report for a finding, and the outbox of deliveries."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower

from server.core.states import Stateful, state_check
from server.detection.models import Finding


class ReportState(models.TextChoices):
    DRAFT = "draft", "waiting for moderation"
    APPROVED = "approved", "may be sent"
    SENT = "sent", "sent"
    REJECTED = "rejected", "will not be sent"
    REFUSED = "refused", "incomplete, so not written"


class Report(Stateful):
    """A text about a finding. Nothing leaves before it is approved; a refused one has a reason instead of a text."""

    State = ReportState

    NEXT: ClassVar = {
        ReportState.DRAFT: frozenset({ReportState.APPROVED, ReportState.REJECTED}),
        ReportState.APPROVED: frozenset({ReportState.SENT, ReportState.REJECTED}),
    }

    finding = models.OneToOneField(Finding, on_delete=models.PROTECT, related_name="report")
    subject = models.CharField(max_length=200, blank=True)
    body = models.TextField(blank=True)
    in_reply_to = models.CharField(max_length=500)
    references = ArrayField(models.CharField(max_length=500), default=list, blank=True)
    to = ArrayField(models.CharField(max_length=320), default=list, blank=True)
    cc = ArrayField(models.CharField(max_length=320), default=list, blank=True)
    released = models.BooleanField(default=False, help_text="A person released it.")

    class Meta:
        constraints = [
            state_check(ReportState, "report_state_known"),
            models.CheckConstraint(
                condition=models.Q(state="refused") | (~models.Q(body="") & ~models.Q(to=[])),
                name="report_has_text_and_reader",
            ),
        ]
        # What the sweep and the home page look for, a few among very many.
        indexes = [
            models.Index(fields=["state"], condition=models.Q(state__in=["draft", "approved"]), name="report_open")
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.subject


class DeliveryState(models.TextChoices):
    QUEUED = "queued", "waiting to be sent"
    SENDING = "sending", "given to the mail server"
    SENT = "sent", "accepted by the mail server"
    FAILED = "failed", "refused"


class Delivery(Stateful):
    """One mail in the outbox. Committed before it is sent; its Message-ID is made from the row."""

    State = DeliveryState

    NEXT: ClassVar = {
        DeliveryState.QUEUED: frozenset({DeliveryState.SENDING, DeliveryState.FAILED}),
        DeliveryState.SENDING: frozenset({DeliveryState.SENT, DeliveryState.QUEUED, DeliveryState.FAILED}),
        # Only a person queues it again.
        DeliveryState.FAILED: frozenset({DeliveryState.QUEUED}),
    }

    report = models.OneToOneField(Report, on_delete=models.PROTECT, related_name="delivery")
    message_id = models.CharField(max_length=200, unique=True)
    tries = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [state_check(DeliveryState, "delivery_state_known")]
        indexes = [
            # What the outbox and the home page look for, a few among very many.
            models.Index(
                fields=["state"], condition=models.Q(state__in=["queued", "sending", "failed"]), name="delivery_open"
            ),
            # Those of the last hour are counted before each mail.
            models.Index(fields=["sent_at"], condition=models.Q(state="sent"), name="delivery_sent"),
        ]
        verbose_name_plural = "deliveries"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"<{self.message_id}>"


class OptOut(models.Model):
    """An address that gets no mail from this site. Lower case; asked for at the moment of sending."""

    address = models.CharField(max_length=320, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["address"]
        constraints = [models.CheckConstraint(condition=models.Q(address=Lower("address")), name="opt_out_lower_case")]

    def __str__(self) -> str:
        return self.address
