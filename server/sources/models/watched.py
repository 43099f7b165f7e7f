"""What is watched: git trees with their branches and revisions, list archives with their mails."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Upper

from server.core import clock
from server.core.addresses import address_check, check_address
from server.core.reasons import code_field


def words(size: int, help_text: str) -> "ArrayField[list[str], list[str]]":
    """A list of short texts, empty by default."""
    return ArrayField(models.CharField(max_length=size), default=list, blank=True, help_text=help_text)


class Watched(models.Model):
    """What a poller notes about a remote: `fetched_at` is the last success, `failures` counts tries since then."""

    enabled = models.BooleanField(default=True)
    polled_at = models.DateTimeField(null=True, blank=True)
    fetched_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True)

    class Meta:
        abstract = True


class Tree(Watched):
    """A watched git repository. All trees share one bare mirror, each under refs/tidemark/trees/NAME/."""

    name = models.SlugField(max_length=60, unique=True)
    url = models.CharField(max_length=500, validators=[check_address])
    poll_seconds = models.PositiveIntegerField(default=300)
    branch_patterns = words(200, "Branches to watch: names, or globs such as linux-6.*.y.")
    tag_patterns = words(200, "Tags whose commits are measured, as globs such as v*.")
    rebasing = models.BooleanField(default=False, help_text="Its branches are expected to be forced.")
    priority = models.SmallIntegerField(default=0, help_text="Larger is measured earlier.")
    uarchs = words(60, "Microarchitectures of interest; all when empty.")
    benchmarks = words(100, "Benchmarks of interest, beside the default set.")
    heads_per_day = models.PositiveIntegerField(
        null=True, blank=True, help_text="New heads measured in 24 hours at most; all when empty, none when 0."
    )
    reference = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="Tag or commit that every head is measured against; empty: the first head that was measured.",
    )
    pinned = models.ForeignKey(
        "Revision",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The reference kernel's revision, found from `reference`.",
    )
    pinned_as = models.CharField(
        max_length=200, blank=True, default="", help_text="What `reference` was when it was pinned."
    )
    pin_problem = models.TextField(blank=True, default="", help_text="Why `reference` is not pinned.")
    merges_by = words(320, "Addresses: every merge that one of these people committed is measured.")
    subject_tags = words(60, "Words in [PATCH ...] that mean this tree: mm-unstable.")
    addresses = words(320, "Addresses in To or Cc that mean this tree.")
    paths = words(200, "Beginnings of the paths that this tree takes patches for: mm/.")
    moderated = models.BooleanField(
        default=True, help_text="A person releases each report on a regression of its branches before it is sent."
    )

    class Meta:
        constraints = [address_check("tree_url_opens_nothing")]
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
    # Whoever forgets to say it has a commit that nobody trusts.
    foreign = models.BooleanField(
        default=True,
        help_text="Holds code of mails that no watched tree published, whatever its tree and its refs are called.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-committed_at", "-id"]

    def __str__(self) -> str:
        return f"{self.sha[:12]} {self.subject}"


class Branch(models.Model):
    """One watched ref of a tree. A branch that the remote deleted keeps its row and its last head."""

    tree = models.ForeignKey(Tree, on_delete=models.CASCADE, related_name="branches")
    name = models.CharField(max_length=200)
    head = models.ForeignKey(Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    head_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tree", "name"], name="branch_once")]
        ordering = ["tree__name", "name"]

    def __str__(self) -> str:
        return f"{self.tree.name}/{self.name}"


class HeadMove(models.Model):
    """One step of a branch, written in the transaction of the step, never changed. Forced-out heads keep a ref."""

    class Kind(models.TextChoices):
        CREATED = "created", "first seen"
        ADVANCED = "advanced", "moved forward"
        FORCED = "forced", "history rewritten"
        DELETED = "deleted", "deleted"
        RESTORED = "restored", "back again"

    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="moves")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    before = models.ForeignKey(Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    after = models.ForeignKey(Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    decision = models.TextField(blank=True, help_text="What is measured of it, or why nothing is.")
    at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind__in=["created", "advanced", "forced", "deleted", "restored"]),
                name="head_move_kind_known",
            )
        ]
        indexes = [
            models.Index(fields=["branch", "-id"], name="head_move_branch"),
            # What lost history lately, a few among very many.
            models.Index(
                fields=["at"], condition=models.Q(kind__in=["forced", "deleted"]), name="head_move_lost_history"
            ),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.branch}: {self.get_kind_display()}"


class Tag(models.Model):
    """A tag as it was seen; one that was moved has a row for each commit it named."""

    tree = models.ForeignKey(Tree, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=200)
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="tags")
    seen_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tree", "name", "revision"], name="tag_once")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.tree.name} {self.name}"


class WantedRevision(models.Model):
    """A revision that the policy of its tree chose to measure, and why."""

    class Why(models.TextChoices):
        HEAD = "head", "new head"
        MERGE = "merge", "merge by a named person"
        TAG = "tag", "tag"

    tree = models.ForeignKey(Tree, on_delete=models.CASCADE, related_name="wanted")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="wanted")
    why = models.CharField(max_length=10, choices=Why.choices)
    detail = models.TextField(blank=True, help_text="Which branch, person or tag.")
    branch = models.CharField(max_length=255, blank=True, help_text="Its name: head of which, or merged to which.")
    taken_at = models.DateTimeField(null=True, blank=True, help_text="When its measuring was asked for, or given up.")
    outcome = models.TextField(blank=True, default="", help_text="Why it is not measured.")
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tree", "revision"], name="wanted_revision_once"),
            models.CheckConstraint(
                condition=models.Q(why__in=["head", "merge", "tag"]), name="wanted_revision_why_known"
            ),
        ]
        indexes = [
            models.Index(fields=["tree", "-created_at"], name="wanted_revision_recent"),
            models.Index(fields=["tree", "id"], condition=models.Q(taken_at=None), name="wanted_revision_waiting"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.revision}: {self.get_why_display()}"


class MailingList(Watched):
    """A public-inbox v2 archive. `url` is the inbox; its git epochs are URL/git/N.git (or URL/N).

    One without `url` is never polled: mails are imported into it.
    """

    class Proof(models.TextChoices):
        DKIM = "dkim", "a valid signature (DKIM) of the sender's domain"
        ARCHIVE = "archive", "the archive is the site's own and proves its senders"

    # Takes what people hand in by themselves. It has no archive and no address: nothing that a mail says leads here.
    SUBMITTED: ClassVar[str] = "submitted"
    # Takes what the service posts to itself: nobody else has a way into it.
    CANARY: ClassVar[str] = "canary"

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

    @classmethod
    def shown(cls) -> models.QuerySet["MailingList"]:
        """What lists tell: all but the one that takes canaries."""
        return cls.objects.exclude(name=cls.CANARY)


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
    """Mails that name each other, over all lists. `stale`: its series must be made anew from its mails.

    One that took long is left alone until `rests_until`.
    """

    stale = models.BooleanField(default=False)
    rests_until = models.DateTimeField(null=True, blank=True)

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


class Open(models.TextChoices):
    """Parts of a mail that a signature may leave out."""

    SUBJECT = "subject", "subject"
    DATE = "date", "date"
    TO = "to", "To"
    CC = "cc", "Cc"
    BLANKS = "blanks", "runs of blanks"


class Message(models.Model):
    """One mail as it arrived. Kept whole, whatever it is; `kind` and `reason` say what was made of it.

    What a series needs to know of it was read when it came: nobody reads the text again, but who applies or shows it.
    """

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
    kind_before = models.CharField(max_length=10, blank=True, help_text="What a deleted mail was.")
    reason = models.TextField(blank=True, help_text="Why it could not be used.")
    reason_code = code_field()
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
    authenticity = models.TextField(blank=True, help_text="What proved the sender, or why nothing did.")
    unsigned = ArrayField(
        models.CharField(max_length=10, choices=Open.choices),
        default=list,
        blank=True,
        help_text="What the proof of the sender leaves open: others may have written it.",
    )
    in_reply_to = models.CharField(max_length=500, blank=True, db_index=True)
    references = ArrayField(models.CharField(max_length=500), default=list, blank=True)
    trailers = words(1000, "Reviewed-by and others: of the commit message of a patch, of unquoted text else.")
    # Of what can be part of a series.
    recipients = words(320, "Addresses of To and Cc.")
    base_commit = models.CharField(max_length=40, blank=True, help_text="What the author says it applies to.")
    change_id = models.CharField(max_length=200, blank=True)
    prerequisites = words(300, "What the author says it needs: patch-id:..., change-id:..., message-id:....")
    # Of a patch.
    author_name = models.TextField(blank=True, help_text="From the body where it names one.")
    author_address = models.CharField(max_length=320, blank=True)
    files = models.PositiveIntegerField(default=0)
    insertions = models.PositiveIntegerField(default=0)
    deletions = models.PositiveIntegerField(default=0)
    paths = words(1024, "All files that it changes, old and new names; none where they are too many or too long.")

    # Strangers decide how long these are: not read where they are not asked for.
    LONG: ClassVar = ("raw", "references", "recipients", "prerequisites", "paths")

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
            # Deletions and rewritten histories ask for mails by their blob.
            models.Index(fields=["mailing_list", "blob"], name="message_blob"),
            # What pages and scripts ask for, newest first: the mails of a list, of a person, and those with a reason.
            models.Index(fields=["mailing_list", "-id"], name="message_of_list"),
            models.Index(Upper("sender_address"), models.F("id").desc(), name="message_of_sender"),
            models.Index(fields=["-id"], condition=~models.Q(reason_code=""), name="message_with_reason"),
            models.Index(fields=["kind", "-id"], name="message_of_kind"),
            models.Index(fields=["mailing_list", "kind", "-id"], name="message_of_list_and_kind"),
            models.Index(fields=["received_at"], name="message_received_at"),
        ]
        ordering = ["id"]

    def __str__(self) -> str:
        return f"<{self.message_id}> {self.subject}"

    @classmethod
    def shown(cls) -> models.QuerySet["Message"]:
        """What lists tell: all but the mails of canaries."""
        return cls.objects.exclude(mailing_list__name=MailingList.CANARY)


class ChangedPath(models.Model):
    """How the path of a file begins that a mail changes, old or new: by it the mails of a directory are found.

    All of `Message.paths`, cut where an index can hold no more.
    """

    LONGEST: ClassVar = 255

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="changed_paths")
    beginning = models.CharField(max_length=LONGEST)

    class Meta:
        # For beginnings: in the usual order of texts an index knows only whole ones.
        indexes = [models.Index(fields=["beginning"], name="changed_path", opclasses=["varchar_pattern_ops"])]
        ordering = ["id"]

    def __str__(self) -> str:
        return self.beginning
