"""Series of patches, from the first mail to commits in the mirror, and what people decide about them."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Upper

from server.core import clock
from server.core.states import Stateful, state_check
from server.sources.models.watched import MailingList, Message, Revision, words


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

    IDS: ClassVar = {"message_id": "root_message_id"}
    NEXT: ClassVar = {
        SeriesState.INCOMPLETE: frozenset(
            {
                SeriesState.HELD,
                SeriesState.READY,
                SeriesState.REFUSED,
                SeriesState.SUPERSEDED,
            }
        ),
        # Back, where a mail is left out that turned out to be nobody's in particular.
        SeriesState.HELD: frozenset(
            {
                SeriesState.INCOMPLETE,
                SeriesState.READY,
                SeriesState.REFUSED,
                SeriesState.SUPERSEDED,
            }
        ),
        SeriesState.READY: frozenset({SeriesState.APPLIED, SeriesState.REFUSED, SeriesState.SUPERSEDED}),
        SeriesState.APPLIED: frozenset({SeriesState.SUPERSEDED}),
        SeriesState.REFUSED: frozenset({SeriesState.READY, SeriesState.SUPERSEDED}),
        # By a person, where what replaced it is not proved.
        SeriesState.SUPERSEDED: frozenset({SeriesState.READY}),
    }

    mailing_list = models.ForeignKey(MailingList, on_delete=models.PROTECT, related_name="series")
    root_message_id = models.CharField(max_length=500, help_text="The cover letter, or patch 1 where there is none.")
    subject = models.TextField(help_text="Without the [PATCH ...] mark.")
    author_name = models.TextField(blank=True)
    author_address = models.CharField(max_length=320)
    version = models.PositiveIntegerField(default=1)
    minor = models.PositiveIntegerField(default=0, help_text="Of a version such as v11.1.")
    total = models.PositiveIntegerField(help_text="Patches that the marks announce.")
    submitted_at = models.DateTimeField()
    base_commit = models.CharField(max_length=40, blank=True, help_text="What the author says it applies to.")
    change_id = models.CharField(max_length=200, blank=True, db_index=True)
    received_at = models.DateTimeField(default=clock.now, help_text="When its first mail arrived.")
    rfc = models.BooleanField(default=False)
    resend = models.BooleanField(default=False)
    canary = models.BooleanField(
        default=False, help_text="The service posted it to itself, to see that the whole way is open."
    )
    tags = words(200, "Other words of the [PATCH ...] mark.")
    prerequisites = words(300, "What the author says it needs: patch-id:..., change-id:..., message-id:....")
    trailers = words(1000, "Of its patches, and of replies to them and to the cover letter, each once.")
    checked_at = models.DateTimeField(null=True, blank=True, help_text="When its senders were last checked.")
    approved_at = models.DateTimeField(null=True, blank=True, help_text="When a person last let it run.")
    base_how = models.TextField(blank=True, help_text="What told the base.")
    base_certain = models.BooleanField(
        null=True, blank=True, help_text="No: nothing in the mails names the base, it only applies there."
    )
    benchmarks = words(100, "What its changed paths ask to be measured, with the default set.")
    tried_at = models.DateTimeField(null=True, blank=True, help_text="When it was last tried to apply it.")
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
            models.UniqueConstraint(fields=["mailing_list", "root_message_id", "version", "minor"], name="series_once"),
            models.CheckConstraint(
                condition=~models.Q(state="applied") | models.Q(base__isnull=False, head__isnull=False),
                name="applied_series_has_revisions",
            ),
        ]
        indexes = [
            # Other versions of a series are asked for by author; pages and commands ask by Message-ID.
            models.Index(Upper("author_address"), name="series_author"),
            models.Index(fields=["root_message_id"], name="series_root"),
            # What the sweep looks for, a few among very many.
            models.Index(
                fields=["state"], condition=models.Q(state__in=["incomplete", "held", "ready"]), name="series_waiting"
            ),
            # What moved or came of late, for sweeps, pages and scripts.
            models.Index(fields=["-state_since", "-id"], name="series_moved"),
            models.Index(fields=["-submitted_at", "-id"], name="series_posted"),
            models.Index(fields=["received_at"], name="series_since"),
            models.Index(
                fields=["-id"],
                condition=models.Q(state="held", checked_at=None, reason_code="in-turn"),
                name="series_in_turn",
            ),
            models.Index(fields=["-id"], condition=models.Q(base_certain=False), name="series_uncertain"),
        ]
        ordering = ["-submitted_at", "-id"]

    def __str__(self) -> str:
        return f"{self.mark} {self.subject}".lstrip()

    @classmethod
    def shown(cls) -> models.QuerySet["Series"]:
        """What lists tell: all but canaries."""
        return cls.objects.filter(canary=False)

    @property
    def number(self) -> tuple[int, int]:
        return self.version, self.minor

    @property
    def first_message_id(self) -> str:
        """The Message-ID of its first mail. The stored one says more where another series had the same one already."""
        return self.root_message_id.partition(" ")[0]

    @property
    def numeral(self) -> str:
        """Its version for people: 1, 11.1."""
        return f"{self.version}.{self.minor}" if self.minor else str(self.version)

    @property
    def mark(self) -> str:
        """Its version as it stands before a subject: v2, v11.1, and nothing for a first one."""
        return "" if self.number == (1, 0) else f"v{self.numeral}"


class Patch(models.Model):
    """One patch of a series: what it changes, its mail knows; `revision` is the commit it became."""

    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="patches")
    index = models.PositiveIntegerField()
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="patches")
    subject = models.TextField()
    trailers = words(1000, "Its own, and those of replies to it or to the cover letter.")
    # Where git finds no diff: it is not asked again, and does not keep others from being asked.
    NO_ID: ClassVar = "none"
    patch_id = models.CharField(
        max_length=40,
        blank=True,
        db_index=True,
        help_text="git patch-id --stable; empty where nobody needed it, `none` where git finds none.",
    )
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

    @property
    def git_id(self) -> str:
        """Git's id of its diff; "" where nobody needed one, or git finds no diff."""
        return "" if self.patch_id == self.NO_ID else self.patch_id


class TrustedSender(models.Model):
    """An address whose series run without a person's approval, once the mails are proved to be its own."""

    address = models.EmailField(max_length=320, unique=True)
    note = models.TextField(blank=True, help_text="Who it is and who decided.")
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ["address"]

    def __str__(self) -> str:
        return self.address


class MeasureRule(models.Model):
    """Series that change a path matching `pattern` ask for `benchmarks`. The pattern ** is the default set."""

    pattern = models.CharField(
        max_length=300, unique=True, help_text="As in .gitignore: mm/*.c, arch/*/lib/memcpy*, **."
    )
    benchmarks = words(100, "Names of benchmarks, or benchmark/case beginnings: will-it-scale/page_fault.")
    note = models.TextField(blank=True)
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["pattern"]

    def __str__(self) -> str:
        return self.pattern
