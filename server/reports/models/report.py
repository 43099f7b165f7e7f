"""What is told: reports, and the outbox of deliveries."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from server.core.states import Stateful, state_check
from server.detection.models import Finding
from server.sources.models import Series


class ReportState(models.TextChoices):
    DRAFT = "draft", "waiting for moderation"
    HELD = "held", "held back by a person"
    APPROVED = "approved", "may be sent"
    SENT = "sent", "sent"
    REJECTED = "rejected", "will not be sent"
    REFUSED = "refused", "incomplete, so not written"


class Report(Stateful):
    """One mail that is told. Nothing leaves before it is approved; a refused one has a reason instead of a text.

    The first of its finding (`first_of`) is a report on a series or a regression of a tree; what comes later about it
    has a `key`, which keeps it from being told twice, and `answers` the one that it puts right or goes on with.
    """

    State = ReportState

    class Kind(models.TextChoices):
        SERIES = "series", "report on a series"
        TREE = "tree", "regression of a tree"
        BISECTION = "bisection", "result of a bisection"
        FOLLOW_UP = "follow-up", "new version of a series"
        RETRACTION = "retraction", "retraction"
        CORRECTION = "correction", "correction"
        DIGEST = "digest", "weekly digest"
        NOTICE = "notice", "notice to a subscriber"
        ANSWER = "answer", "answer to a command"

    FIRST: ClassVar = frozenset({Kind.SERIES, Kind.TREE, Kind.FOLLOW_UP})
    # By a person, for that person.
    WANTED: ClassVar = frozenset({Kind.DIGEST, Kind.NOTICE, Kind.ANSWER})
    # With it begins the key of what operators are told of the canary.
    OF_CANARY: ClassVar = "canary:"
    OPEN: ClassVar = frozenset({ReportState.DRAFT, ReportState.HELD, ReportState.APPROVED})

    IDS: ClassVar = {"finding": "finding_id"}
    NEXT: ClassVar = {
        ReportState.DRAFT: frozenset({ReportState.APPROVED, ReportState.HELD, ReportState.REJECTED}),
        ReportState.HELD: frozenset({ReportState.DRAFT, ReportState.APPROVED, ReportState.REJECTED}),
        # Back, where its text changed and wants to be read again.
        ReportState.APPROVED: frozenset({ReportState.SENT, ReportState.DRAFT, ReportState.HELD, ReportState.REJECTED}),
    }

    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.SERIES)
    finding = models.ForeignKey(Finding, null=True, blank=True, on_delete=models.PROTECT, related_name="reports")
    first_of = models.OneToOneField(
        Finding, null=True, blank=True, on_delete=models.PROTECT, related_name="report", help_text="Its first report."
    )
    key = models.CharField(max_length=200, blank=True, help_text="What is told once, beside first reports.")
    answers = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="answered_by",
        help_text="The report that it puts right or goes on with.",
    )
    subject = models.CharField(max_length=200, blank=True)
    body = models.TextField(blank=True, help_text="What leaves; a person may have edited it.")
    composed = models.TextField(blank=True, help_text="The text as it was written from the rows.")
    in_reply_to = models.CharField(max_length=500, blank=True)
    references = ArrayField(models.CharField(max_length=500), default=list, blank=True)
    to = ArrayField(models.CharField(max_length=320), default=list, blank=True)
    cc = ArrayField(models.CharField(max_length=320), default=list, blank=True)
    released = models.BooleanField(default=False, help_text="A person released it.")
    told = models.JSONField(
        null=True, blank=True, help_text="What it claims: ids of comparisons that moved, and of culprits."
    )

    class Meta:
        constraints = [
            state_check(ReportState, "report_state_known"),
            models.CheckConstraint(
                condition=models.Q(first_of=None) | models.Q(first_of=models.F("finding")),
                name="report_first_of_its_own",
            ),
            models.CheckConstraint(
                condition=models.Q(first_of__isnull=False) | ~models.Q(key=""), name="report_has_its_key"
            ),
            models.UniqueConstraint(fields=["key"], condition=~models.Q(key=""), name="report_once"),
            models.CheckConstraint(
                condition=models.Q(state="refused") | (~models.Q(body="") & ~models.Q(to=[])),
                name="report_has_text_and_reader",
            ),
        ]
        # What the sweep and the home page look for, a few among very many.
        indexes = [
            models.Index(
                fields=["state"], condition=models.Q(state__in=["draft", "held", "approved"]), name="report_open"
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.subject

    @classmethod
    def shown(cls) -> models.QuerySet["Report"]:
        """What lists tell: all but what is told of canaries."""
        return cls.objects.exclude(finding__canary=True).exclude(key__startswith=cls.OF_CANARY)

    @property
    def series(self) -> Series | None:
        """Whose thread it is told in; None for what is told of a branch or a week."""
        return self.finding.series if self.finding else None

    @property
    def is_moderated(self) -> bool:
        """Whether a person must release it. What somebody asked for goes to that one alone."""
        if self.kind in self.WANTED or self.finding is None:
            return self.kind not in self.WANTED
        series, branch = self.finding.series, self.finding.branch
        return series.mailing_list.moderated if series else branch is None or branch.tree.moderated

    @property
    def is_edited(self) -> bool:
        """Whether a person changed the text."""
        return bool(self.composed) and self.body != self.composed


class DeliveryState(models.TextChoices):
    QUEUED = "queued", "waiting to be sent"
    SENDING = "sending", "given to the mail server"
    SENT = "sent", "accepted by the mail server"
    FAILED = "failed", "refused"


class Delivery(Stateful):
    """One mail in the outbox. Committed before it is sent; its Message-ID is made from the row."""

    State = DeliveryState

    IDS: ClassVar = {"report": "report_id", "message_id": "message_id"}
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
    in_doubt = models.BooleanField(default=False, help_text="A try ended without an answer: it may have arrived.")
    put_off = ArrayField(
        models.CharField(max_length=320),
        default=list,
        blank=True,
        help_text="Addresses that the mail server takes later, while the others have the mail.",
    )

    class Meta:
        constraints = [state_check(DeliveryState, "delivery_state_known")]
        indexes = [
            # What the outbox and the home page look for, a few among very many.
            models.Index(
                fields=["state"], condition=models.Q(state__in=["queued", "sending", "failed"]), name="delivery_open"
            ),
            # Those of the last hour are counted before each mail.
            models.Index(fields=["sent_at"], condition=models.Q(state="sent"), name="delivery_sent"),
            # Of a mail that has left, who was put off: looked for in each sweep.
            models.Index(
                fields=["not_before"], condition=models.Q(state="sent") & ~models.Q(put_off=[]), name="delivery_rest"
            ),
        ]
        verbose_name_plural = "deliveries"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"<{self.message_id}>"

    @classmethod
    def shown(cls) -> models.QuerySet["Delivery"]:
        """What lists tell: all but what is told of canaries."""
        return cls.objects.exclude(report__finding__canary=True).exclude(report__key__startswith=Report.OF_CANARY)
