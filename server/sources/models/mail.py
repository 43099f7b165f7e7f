"""List archives and the mails that came from them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Upper

from server.core import clock
from server.core.addresses import address_check, check_address
from server.sources.models.trees import Tree, Watched, words


class MailingList(Watched):
    """A public-inbox v2 archive. `url` is the inbox; its git epochs are URL/git/N.git (or URL/N).

    One without `url` is never polled: mails are imported into it.
    """

    class Proof(models.TextChoices):
        DKIM = "dkim", "a valid signature (DKIM) of the sender's domain"
        ARCHIVE = "archive", "the archive is the site's own and proves its senders"

    name = models.SlugField(max_length=60, unique=True)
    url = models.CharField(max_length=500, blank=True, validators=[check_address])
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
            models.CheckConstraint(condition=models.Q(proof__in=["dkim", "archive"]), name="mailing_list_proof_known"),
            address_check("mailing_list_url_opens_nothing"),
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


class ThreadMember(models.Model):
    """A Message-ID that a thread owns: of a mail that is stored, or that a stored mail names as its parent.

    Patches sent without threading share a name that is no Message-ID: it has spaces, and stands for sender and time.
    """

    name = models.CharField(max_length=500, primary_key=True)
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="members")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"<{self.name}> in {self.thread}"


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
    kind_before = models.CharField(max_length=10, blank=True, db_default="", help_text="What a deleted mail was.")
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
    trailers = words(1000, "Reviewed-by and others: of the commit message of a patch, of unquoted text else.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["mailing_list", "message_id", "blob"], name="message_once"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["cover", "patch", "other", "unusable", "deleted"]),
                name="message_kind_known",
            ),
        ]
        indexes = [
            models.Index(fields=["sent_at"], name="message_sent_at"),
            # What the sweep looks for, hardly any among very many.
            models.Index(fields=["id"], condition=models.Q(thread=None), name="message_threadless"),
            # Deletions and rewritten histories ask for mails by their blob.
            models.Index(fields=["mailing_list", "blob"], name="message_blob"),
            # What pages and scripts ask for, newest first: the mails of a list, of a person, and those with a reason.
            models.Index(fields=["mailing_list", "-id"], name="message_of_list"),
            models.Index(Upper("sender_address"), models.F("id").desc(), name="message_of_sender"),
            models.Index(fields=["-id"], condition=~models.Q(reason=""), name="message_with_reason"),
            models.Index(fields=["kind", "-id"], name="message_of_kind"),
            models.Index(fields=["mailing_list", "kind", "-id"], name="message_of_list_and_kind"),
            models.Index(fields=["received_at"], name="message_received_at"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"<{self.message_id}> {self.subject}"
