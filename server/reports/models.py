"""What is told: a report for a finding, and the outbox of deliveries."""

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower

from server.core import clock
from server.core.addresses import check_address
from server.core.models import LONGEST_ACTOR
from server.core.states import Stateful, state_check
from server.detection.models import Finding
from server.lab.models import Microarchitecture
from server.results.models import Benchmark
from server.sources.models import Message, Series, Tree


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
    OPEN: ClassVar = frozenset({ReportState.DRAFT, ReportState.HELD, ReportState.APPROVED})

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


class MailStop(models.Model):
    """Somebody stopped all that leaves the site, and why; it is over when somebody lets it go on, and why."""

    person = models.CharField(max_length=LONGEST_ACTOR)
    reason = models.TextField()
    at = models.DateTimeField(default=clock.now)
    ended_by = models.CharField(max_length=LONGEST_ACTOR, blank=True)
    ended_because = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["ended_at"],
                nulls_distinct=False,
                condition=models.Q(ended_at=None),
                name="mail_stop_one_at_a_time",
            ),
            models.CheckConstraint(
                condition=~models.Q(person="") & ~models.Q(reason=""), name="mail_stop_says_who_and_why"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"stopped by {self.person}"


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


class Bounce(models.Model):
    """An address to which a mail server did not take a delivery, as it answered itself or told later by a mail.

    `said` may name people: it is for the operator, never for the public.
    """

    delivery = models.ForeignKey(Delivery, on_delete=models.PROTECT, related_name="bounces")
    address = models.CharField(max_length=320)
    permanent = models.BooleanField(help_text="The server will not take such a mail later, either.")
    status = models.CharField(max_length=11, blank=True, help_text="RFC 3463, such as 5.1.1; empty: not told.")
    said = models.TextField(blank=True, help_text="The words of the mail server.")
    message = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="The mail that told it."
    )
    at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["delivery", "address", "message"], name="bounce_told_once"),
            models.UniqueConstraint(
                fields=["delivery", "address"], condition=models.Q(message=None), name="bounce_answered_once"
            ),
            models.CheckConstraint(condition=models.Q(address=Lower("address")), name="bounce_lower_case"),
        ]
        indexes = [
            models.Index(fields=["address", "at"], name="bounce_of_address"),
            models.Index(fields=["at"], condition=models.Q(permanent=True), name="bounce_permanent"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.address}: {self.status or ('permanent' if self.permanent else 'for now')}"


class RestingAddress(models.Model):
    """An address that is not written to any more, because mails to it come back; a person may lift that."""

    address = models.CharField(max_length=320, unique=True)
    since = models.DateTimeField(default=clock.now)
    reason = models.TextField(help_text="What made it rest.")
    lifted_at = models.DateTimeField(
        null=True, blank=True, help_text="It is written to again; what came back before does not count any more."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(address=Lower("address")), name="resting_lower_case")]
        verbose_name_plural = "resting addresses"
        ordering = ["address"]

    def __str__(self) -> str:
        return self.address


class ReturnedMail(models.Model):
    """A mail that came to this site's own address, and what the outbox made of it."""

    class Meaning(models.TextChoices):
        BOUNCE = "bounce", "an address does not take a mail of ours"
        DELAY = "delay", "a mail of ours is late, and still on its way"
        AUTOMATIC = "automatic", "an automatic answer"
        NOT_OURS = "not-ours", "tells of no mail of this site, or of nobody that it was sent to"
        OTHER = "other", "no notice of a mail server"

    message = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="returned")
    meaning = models.CharField(max_length=10, choices=Meaning.choices)
    read_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(meaning__in=["bounce", "delay", "automatic", "not-ours", "other"]),
                name="returned_mail_meaning_known",
            )
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.message}: {self.get_meaning_display()}"
