"""Watched git trees: what to fetch, where each branch stood and when, and which revisions deserve measuring."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from server.core import clock
from server.core.addresses import address_check, check_address


def words(size: int, help_text: str) -> "ArrayField[list[str], list[str]]":
    """A list of short texts, empty by default."""
    return ArrayField(
        models.CharField(max_length=size), default=list, db_default=models.Value([]), blank=True, help_text=help_text
    )


class Watched(models.Model):
    """What a poller notes about a remote: `fetched_at` is the last success, `failures` counts tries since then."""

    enabled = models.BooleanField(default=True)
    polled_at = models.DateTimeField(null=True, blank=True)
    fetched_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, db_default=0)
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
    rebasing = models.BooleanField(default=False, db_default=False, help_text="Its branches are expected to be forced.")
    priority = models.SmallIntegerField(default=0, db_default=0, help_text="Larger is measured earlier.")
    uarchs = words(60, "Microarchitectures of interest; all when empty.")
    benchmarks = words(100, "Benchmarks of interest, beside the default set.")
    heads_per_day = models.PositiveIntegerField(
        null=True, blank=True, help_text="New heads measured in 24 hours at most; all when empty, none when 0."
    )
    reference = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
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
        max_length=200, blank=True, default="", db_default="", help_text="What `reference` was when it was pinned."
    )
    pin_problem = models.TextField(blank=True, default="", db_default="", help_text="Why `reference` is not pinned.")
    merges_by = words(320, "Addresses: every merge that one of these people committed is measured.")
    subject_tags = words(60, "Words in [PATCH ...] that mean this tree: mm-unstable.")
    addresses = words(320, "Addresses in To or Cc that mean this tree.")
    paths = words(200, "Beginnings of the paths that this tree takes patches for: mm/.")

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
        db_default=True,
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
    at = models.DateTimeField(default=clock.now, db_default=Now())

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
    seen_at = models.DateTimeField(default=clock.now, db_default=Now())

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
    taken_at = models.DateTimeField(null=True, blank=True, help_text="When its measuring was asked for, or given up.")
    outcome = models.TextField(blank=True, default="", db_default="", help_text="Why it is not measured.")
    created_at = models.DateTimeField(default=clock.now, db_default=Now())

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
