"""List archives and the mails that came from them."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from server.core import clock
from server.sources.models.trees import Tree, Watched


class MailingList(Watched):
    """A public-inbox v2 archive. `url` is the inbox; its git epochs are URL/git/N.git (or URL/N).

    One without `url` is never polled: mails are imported into it.
    """

    class Proof(models.TextChoices):
        DKIM = "dkim", "a valid signature (DKIM) of the sender's domain"
        ARCHIVE = "archive", "the archive is the site's own and proves its senders"

    name = models.SlugField(max_length=60, unique=True)
    url = models.CharField(max_length=500, blank=True)
    address = models.EmailField(blank=True, help_text="Where a reply to the list goes.")
    tree = models.ForeignKey(
        Tree,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="lists",
        help_text="Default base tree.",
    )
    since = models.DateTimeField(null=True, blank=True, help_text="Mails that the archive took before are not read.")
    proof = models.CharField(
        max_length=10,
        choices=Proof.choices,
        default=Proof.DKIM,
        db_default=Proof.DKIM,
        help_text="What proves a sender.",
    )
    moderated = models.BooleanField(default=True, help_text="A person releases each report before it is sent.")
    poll_seconds = models.PositiveIntegerField(default=60)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(proof__in=["dkim", "archive"]), name="mailing_list_proof_known")
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Epoch(models.Model):
    """How far one git epoch of a list has been read."""

    mailing_list = models.ForeignKey(MailingList, on_delete=models.CASCADE, related_name="epochs")
    number = models.PositiveIntegerField()
    last_commit = models.CharField(max_length=40, blank=True)
    rewritten_at = models.DateTimeField(null=True, blank=True, help_text="When its history was last found rewritten.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["mailing_list", "number"], name="epoch_once")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.mailing_list.name}/{self.number}"


class Thread(models.Model):
    """Mails that name each other, over all lists. `stale`: its series must be made anew from its mails."""

    stale = models.BooleanField(default=False, db_default=False)

    class Meta:
        indexes = [models.Index(fields=["id"], condition=models.Q(stale=True), name="thread_stale")]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"thread {self.pk}"


class Message(models.Model):
    """One mail as it arrived. Kept whole, whatever it is; `kind` and `reason` say what was made of it."""

    class Kind(models.TextChoices):
        COVER = "cover", "cover letter"
        PATCH = "patch", "patch"
        OTHER = "other", "discussion"
        UNUSABLE = "unusable", "could not be read"
        DELETED = "deleted", "deleted from the archive"

    mailing_list = models.ForeignKey(MailingList, on_delete=models.PROTECT, related_name="messages")
    message_id = models.CharField(max_length=500, db_index=True)
    blob = models.CharField(max_length=40, help_text="Object id in the archive's epoch.")
    raw = models.BinaryField()
    kind = models.CharField(max_length=10, choices=Kind.choices)
    reason = models.TextField(blank=True, help_text="Why it could not be used.")
    subject = models.TextField(blank=True)
    sender_name = models.TextField(blank=True)
    sender_address = models.CharField(max_length=320, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    received_at = models.DateTimeField(
        default=clock.now, help_text="When the archive took it; for a mail without one, when it was stored."
    )
    thread = models.ForeignKey(Thread, null=True, blank=True, on_delete=models.SET_NULL, related_name="messages")
    authentic = models.BooleanField(
        null=True, blank=True, help_text="Whether its sender was proved; empty: not checked."
    )
    authenticity = models.TextField(blank=True, db_default="", help_text="What proved the sender, or why nothing did.")
    in_reply_to = models.CharField(max_length=500, blank=True, db_index=True)
    references = ArrayField(models.CharField(max_length=500), default=list, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["mailing_list", "message_id", "blob"], name="message_once"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["cover", "patch", "other", "unusable", "deleted"]),
                name="message_kind_known",
            ),
        ]
        indexes = [
            GinIndex(fields=["references"], name="message_references"),
            models.Index(fields=["sent_at"], name="message_sent_at"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"<{self.message_id}> {self.subject}"
