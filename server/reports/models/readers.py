"""Who gets no mail, what came back, and who holds all mails back."""

from django.db import models
from django.db.models.functions import Lower

from server.core import clock
from server.core.models import LONGEST_ACTOR
from server.reports.models.report import Delivery
from server.sources.models import Message


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
