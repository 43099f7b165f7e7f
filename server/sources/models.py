"""What changed: git trees with their revisions, list archives with their messages, and series made of them."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from server.core.states import Stateful, state_check


class Tree(models.Model):
    """A watched git repository. All trees share one bare mirror, each under refs/tidemark/trees/NAME/."""

    name = models.SlugField(max_length=60, unique=True)
    url = models.CharField(max_length=500)
    enabled = models.BooleanField(default=True)
    poll_seconds = models.PositiveIntegerField(default=300)
    polled_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Revision(models.Model):
    """A commit that the mirror holds: of a tree, or made by applying a series. Never changed."""

    sha = models.CharField(max_length=40, unique=True)
    tree_sha = models.CharField(max_length=40, db_index=True, help_text="Same content, same kernel.")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    tree = models.ForeignKey(Tree, on_delete=models.PROTECT, related_name="revisions")
    subject = models.TextField()
    author = models.CharField(max_length=300)
    committed_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-committed_at", "-id"]

    def __str__(self) -> str:
        return f"{self.sha[:12]} {self.subject}"


class Branch(models.Model):
    """One watched ref of a tree."""

    tree = models.ForeignKey(Tree, on_delete=models.CASCADE, related_name="branches")
    name = models.CharField(max_length=200)
    head = models.ForeignKey(Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    head_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tree", "name"], name="branch_once")]
        ordering = ["tree__name", "name"]

    def __str__(self) -> str:
        return f"{self.tree.name}/{self.name}"


class MailingList(models.Model):
    """A public-inbox v2 archive. `url` is the inbox; its git epochs are URL/git/N.git (or URL/N)."""

    name = models.SlugField(max_length=60, unique=True)
    url = models.CharField(max_length=500)
    address = models.EmailField(help_text="Where a reply to the list goes.")
    tree = models.ForeignKey(
        Tree,
        on_delete=models.PROTECT,
        related_name="lists",
        help_text="Default base tree.",
    )
    enabled = models.BooleanField(default=True)
    moderated = models.BooleanField(default=True, help_text="A person releases each report before it is sent.")
    poll_seconds = models.PositiveIntegerField(default=60)
    polled_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Epoch(models.Model):
    """How far one git epoch of a list has been read."""

    mailing_list = models.ForeignKey(MailingList, on_delete=models.CASCADE, related_name="epochs")
    number = models.PositiveIntegerField()
    last_commit = models.CharField(max_length=40, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["mailing_list", "number"], name="epoch_once")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.mailing_list.name}/{self.number}"


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
    received_at = models.DateTimeField(auto_now_add=True)
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


class SeriesState(models.TextChoices):
    INCOMPLETE = "incomplete", "waiting for mails"
    HELD = "held", "waiting for approval"
    READY = "ready", "complete and trusted"
    APPLIED = "applied", "applied to its base"
    REFUSED = "refused", "cannot be applied"
    SUPERSEDED = "superseded", "replaced by a newer version"


class Series(Stateful):
    """All patches of one version of a posting, from its first mail to its commits in the mirror."""

    State = SeriesState

    NEXT: ClassVar = {
        SeriesState.INCOMPLETE: frozenset(
            {
                SeriesState.HELD,
                SeriesState.READY,
                SeriesState.REFUSED,
                SeriesState.SUPERSEDED,
            }
        ),
        SeriesState.HELD: frozenset({SeriesState.READY, SeriesState.REFUSED, SeriesState.SUPERSEDED}),
        SeriesState.READY: frozenset({SeriesState.APPLIED, SeriesState.REFUSED, SeriesState.SUPERSEDED}),
        SeriesState.APPLIED: frozenset({SeriesState.SUPERSEDED}),
        SeriesState.REFUSED: frozenset({SeriesState.READY}),
    }

    mailing_list = models.ForeignKey(MailingList, on_delete=models.PROTECT, related_name="series")
    root_message_id = models.CharField(max_length=500, help_text="The cover letter, or patch 1 where there is none.")
    subject = models.TextField(help_text="Without the [PATCH ...] mark.")
    author_name = models.TextField(blank=True)
    author_address = models.CharField(max_length=320)
    version = models.PositiveIntegerField(default=1)
    total = models.PositiveIntegerField(help_text="Patches that the marks announce.")
    submitted_at = models.DateTimeField()
    base_commit = models.CharField(max_length=40, blank=True, help_text="What the author says it applies to.")
    change_id = models.CharField(max_length=200, blank=True, db_index=True)
    failures = models.PositiveIntegerField(default=0, help_text="How often git failed while it was applied.")
    cover = models.ForeignKey(Message, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    superseded_by = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="supersedes",
    )
    base = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="series_on_it",
    )
    head = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="series_ending",
    )

    class Meta:
        verbose_name_plural = "series"
        constraints = [
            state_check(SeriesState, "series_state_known"),
            models.UniqueConstraint(fields=["mailing_list", "root_message_id", "version"], name="series_once"),
            models.CheckConstraint(
                condition=~models.Q(state="applied") | models.Q(base__isnull=False, head__isnull=False),
                name="applied_series_has_revisions",
            ),
        ]
        ordering = ["-submitted_at", "-id"]

    def __str__(self) -> str:
        mark = f"v{self.version} " if self.version > 1 else ""
        return f"{mark}{self.subject}"


class Patch(models.Model):
    """One patch of a series; `revision` is the commit it became."""

    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="patches")
    index = models.PositiveIntegerField()
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="patches")
    subject = models.TextField()
    revision = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="patches",
    )

    class Meta:
        verbose_name_plural = "patches"
        constraints = [models.UniqueConstraint(fields=["series", "index"], name="patch_once")]
        ordering = ["series", "index"]

    def __str__(self) -> str:
        return f"{self.index}/{self.series.total} {self.subject}"
