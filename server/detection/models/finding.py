"""Comparisons of cells, and what deserves a person: a finding, which is a vector of verdicts over microarchitectures
with a life cycle, and the bisections that look for its revision.
"""

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from server.core.models import LONGEST_ACTOR
from server.core.reasons import NONE, Reason, code_field
from server.core.states import Stateful, state_check
from server.lab.models import CoreType, Machine, Microarchitecture, Session, Trial
from server.results.models import Case, Metric
from server.sources.models import Branch, Revision, Series
from server.sources.models.watched import words


class Verdict(models.TextChoices):
    IMPROVED = "improved", "improved"
    REGRESSED = "regressed", "regressed"
    UNCHANGED = "unchanged", "unchanged"
    INCONCLUSIVE = "inconclusive", "inconclusive"


CHANGES = (Verdict.REGRESSED, Verdict.IMPROVED)


class Comparison(models.Model):
    """Base against patched in one cell: (session, case, metric, core type).

    Pages, answers and mails show this row and `recompute` compares it: what it says of its cell is declared here alone.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="comparisons")
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="comparisons")
    metric = models.ForeignKey(Metric, on_delete=models.PROTECT, related_name="comparisons")
    core_type = models.ForeignKey(CoreType, on_delete=models.PROTECT, related_name="comparisons")
    verdict = models.CharField(max_length=12, choices=Verdict.choices)
    reason = models.TextField(blank=True, help_text="Why it could not be judged, for people.")
    reason_code = code_field()
    base_boots = models.PositiveIntegerField()
    base_mean = models.FloatField(null=True, help_text="Mean of the boots' values, in the metric's unit.")
    base_sd = models.FloatField(null=True, help_text="Standard deviation between boots, in the metric's unit.")
    patched_boots = models.PositiveIntegerField()
    patched_mean = models.FloatField(null=True)
    patched_sd = models.FloatField(null=True)
    ratio = models.FloatField(null=True, help_text="patched / base")
    ratio_low = models.FloatField(null=True, help_text="95 % interval")
    ratio_high = models.FloatField(null=True)
    p_value = models.FloatField(null=True, help_text="Against no change, over the averaged error structures")
    p_adjusted = models.FloatField(
        null=True, help_text="Benjamini-Hochberg over the cells of the machine, times the number of machines"
    )
    p_rank = models.FloatField(null=True, help_text="Exact rank test on boots")
    family_size = models.PositiveIntegerField()
    min_effect = models.FloatField(help_text="Smallest change worth a verdict, as a fraction.")
    mde = models.FloatField(null=True, help_text="Smallest change that would have been seen, as a fraction.")
    flags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    computed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            # Few cells move, and fewer by much: filters of findings by their size look for these.
            models.Index(
                fields=["verdict", "ratio"],
                condition=Q(verdict__in=(Verdict.REGRESSED, Verdict.IMPROVED)),
                name="comparison_moved",
            ),
            # Whether one of a session is in such a cell is asked for one finding after the other.
            models.Index(
                fields=["session", "case", "metric"],
                condition=Q(verdict__in=(Verdict.REGRESSED, Verdict.IMPROVED)),
                name="comparison_moved_of_session",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["session", "case", "metric", "core_type"],
                name="comparison_once",
            ),
            models.CheckConstraint(
                condition=Q(verdict__in=list(Verdict.values)),
                name="comparison_verdict_known",
            ),
            models.CheckConstraint(
                condition=~Q(verdict="unchanged") | Q(mde__isnull=False),
                name="unchanged_says_its_mde",
            ),
        ]
        ordering = ["session", "case", "metric"]

    def __str__(self) -> str:
        return f"{self.case} on {self.session.machine.name}: {self.verdict}"


# All that a comparison says of its cell, in the order of answers.
FIGURES = tuple(
    field.name
    for field in Comparison._meta.concrete_fields
    if not (field.primary_key or field.is_relation or field.name == "computed_at")
)


class FindingState(models.TextChoices):
    CANDIDATE = "candidate", "suspected; fresh boots or checks are under way"
    CONFIRMED = "confirmed", "judged from interleaved boots"
    BISECTING = "bisecting", "its revision is being looked for"
    REPORTED = "reported", "told to people"
    FIXED = "fixed", "mended, and measured to be"
    ACCEPTED = "accepted", "known and accepted"
    INVALID = "invalid", "withdrawn"
    SUPERSEDED = "superseded", "replaced by another finding"


_ENDS = frozenset({FindingState.FIXED, FindingState.ACCEPTED, FindingState.INVALID, FindingState.SUPERSEDED})


class Finding(Stateful):
    """What the cells of one trial say together: of a series, or of a change suspected in a branch."""

    State = FindingState

    class Kind(models.TextChoices):
        REGRESSED = "regressed", "regressed"
        IMPROVED = "improved", "improved"
        SPLIT = "split", "split: regressed somewhere, improved elsewhere"
        UNCHANGED = "unchanged", "unchanged"
        INCONCLUSIVE = "inconclusive", "inconclusive"

    IDS: ClassVar = {"series": "series_id"}
    NEXT: ClassVar = {
        FindingState.CANDIDATE: frozenset(
            {FindingState.CONFIRMED, FindingState.INVALID, FindingState.SUPERSEDED, FindingState.ACCEPTED}
        ),
        # One that said nothing may come to claim something, which has to be checked.
        FindingState.CONFIRMED: frozenset(
            {FindingState.CANDIDATE, FindingState.BISECTING, FindingState.REPORTED, *_ENDS}
        ),
        FindingState.BISECTING: frozenset({FindingState.CONFIRMED, FindingState.REPORTED, *_ENDS}),
        FindingState.REPORTED: frozenset({FindingState.BISECTING, *_ENDS}),
        # What was mended may come back, what was accepted was so until a day.
        FindingState.FIXED: frozenset({FindingState.CONFIRMED, FindingState.REPORTED, FindingState.SUPERSEDED}),
        FindingState.ACCEPTED: frozenset(
            {
                FindingState.CANDIDATE,
                FindingState.CONFIRMED,
                FindingState.REPORTED,
                FindingState.FIXED,
                FindingState.INVALID,
                FindingState.SUPERSEDED,
            }
        ),
    }
    # What the page of one finding tells at length; lists leave it out.
    LONG: ClassVar = ("gaps", "explanations", "counters", "checks")
    # A claim that stands: checked, and not taken back.
    STANDING: ClassVar = (
        FindingState.CONFIRMED,
        FindingState.BISECTING,
        FindingState.REPORTED,
        FindingState.FIXED,
        FindingState.ACCEPTED,
    )

    series = models.OneToOneField(Series, null=True, blank=True, on_delete=models.PROTECT, related_name="finding")
    branch = models.ForeignKey(Branch, null=True, blank=True, on_delete=models.PROTECT, related_name="findings")
    before = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Measured without it; it came after.",
    )
    after = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Measured with it; it came no later.",
    )
    culprit = models.ForeignKey(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="findings_of_it",
        help_text="The revision that made it, where all machines agree on one.",
    )
    trial = models.OneToOneField(
        Trial, null=True, blank=True, on_delete=models.PROTECT, related_name="finding", help_text="What judged it."
    )
    kind = models.CharField(max_length=12, choices=Kind.choices)
    headline = models.TextField(help_text="One line that names each microarchitecture.")
    virtual = models.BooleanField(help_text="From virtual machines: not evidence.")
    canary = models.BooleanField(default=False, help_text="Of a series that the service posted to itself.")
    identical = models.BooleanField(default=False, help_text="Both kernels are the same image.")
    gaps = models.JSONField(default=list, blank=True, help_text="What was wanted and has no result, with the reason.")
    explanations = models.JSONField(default=list, blank=True, help_text="Facts that separate machines.")
    counters = models.JSONField(default=list, blank=True, help_text="Counters that moved with it.")
    checks = models.JSONField(
        default=list,
        blank=True,
        help_text="What was checked, and the answer.",
    )
    same_as = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="duplicates",
        help_text="The finding that it stands down for: that one tells of the same change.",
    )
    previous = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="following",
        help_text="That of the version before.",
    )
    fix = models.ForeignKey(
        Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="findings_fixed_by_it"
    )
    promised_fix = models.CharField(
        max_length=300, blank=True, default="", help_text="Subject of the commit that is to mend it, as a person says."
    )
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="findings",
        help_text="Who looks after it.",
    )
    news = models.BooleanField(
        default=True, help_text="It says or is something else since it was last looked at for what is to be told."
    )

    class Meta:
        constraints = [
            state_check(FindingState, "finding_state_known"),
            models.CheckConstraint(
                condition=Q(
                    kind__in=[
                        "regressed",
                        "improved",
                        "split",
                        "unchanged",
                        "inconclusive",
                    ]
                ),
                name="finding_kind_known",
            ),
            models.CheckConstraint(
                condition=Q(series__isnull=False, branch__isnull=True, trial__isnull=False)
                | Q(series__isnull=True, branch__isnull=False, before__isnull=False, after__isnull=False),
                name="finding_of_series_or_branch",
            ),
            models.UniqueConstraint(fields=["branch", "before", "after"], name="finding_of_boundary_once"),
        ]
        indexes = [
            models.Index(fields=["state", "-id"], name="finding_in_state"),
            models.Index(fields=["kind", "-id"], name="finding_of_kind"),
            # What sweeps look for: what moved of late. What says nothing stays confirmed for ever.
            models.Index(fields=["state_since"], name="finding_moved"),
            models.Index(fields=["created_at"], name="finding_since"),
            # What waits for somebody, as lists and the home page count it.
            models.Index(
                fields=["-id"],
                condition=Q(
                    state__in=["candidate", "confirmed", "bisecting", "reported"],
                    kind__in=["regressed", "split", "improved"],
                ),
                name="finding_open",
            ),
            # A few among very many, however long ago they moved.
            models.Index(fields=["id"], condition=Q(news=True), name="finding_with_news"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind}: {self.series or self.branch}"

    @classmethod
    def shown(cls) -> models.QuerySet["Finding"]:
        """What lists, feeds, subscribers and other systems are told: all but those of canaries."""
        return cls.objects.filter(canary=False)

    def advance(self, to: str, reason: Reason = NONE, *, actor: str = "", **fields: Any) -> bool:
        """Each step is news to those who tell of it."""
        return super().advance(to, reason, actor=actor, **({"news": True} | fields))


# What a component tells of its cells, in the order of answers.
COVERAGE = ("mde", "mde_half", "told", "untold", "blind", "missed")


class FindingVerdict(models.Model):
    """One component of a finding's vector."""

    finding = models.ForeignKey(Finding, on_delete=models.CASCADE, related_name="verdicts")
    uarch = models.ForeignKey(Microarchitecture, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=12, choices=[*Verdict.choices, ("split", "split between cases")])
    reason = models.TextField(blank=True)
    comparison = models.ForeignKey(
        Comparison,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The cell that moved most.",
    )
    mde = models.FloatField(null=True, help_text="Largest of the unchanged cells' smallest visible effects.")
    mde_half = models.FloatField(null=True, help_text="What half of the unchanged cells would have seen.")
    told = models.PositiveIntegerField(default=0, db_default=0, help_text="Cells that have a verdict.")
    untold = models.PositiveIntegerField(default=0, db_default=0, help_text="Cells that could not be told.")
    blind = models.PositiveIntegerField(default=0, db_default=0, help_text="Of these, cells without any figure.")
    missed = models.FloatField(null=True, help_text="Largest change that the others of these may hide.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["finding", "uarch"], name="finding_verdict_once"),
            models.CheckConstraint(
                condition=Q(verdict__in=[*Verdict.values, "split"]),
                name="finding_verdict_known",
            ),
        ]
        # Scripts ask what regressed somewhere, newest first.
        indexes = [models.Index(fields=["uarch", "verdict", "-finding"], name="finding_verdict_on_uarch")]
        ordering = ["finding", "uarch__name"]

    def __str__(self) -> str:
        return f"{self.uarch.name}: {self.verdict}"


class FindingTrial(models.Model):
    """A trial that a finding asked for: of its layout, or of what may mend it."""

    finding = models.ForeignKey(Finding, on_delete=models.CASCADE, related_name="asked")
    trial = models.OneToOneField(Trial, on_delete=models.CASCADE, related_name="asked_by")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.trial} of finding {self.finding_id}"


class Acceptance(models.Model):
    """A line of the ledger: somebody accepts what a finding says, for some microarchitectures, until a day."""

    finding = models.ForeignKey(Finding, on_delete=models.PROTECT, related_name="acceptances")
    metric = models.ForeignKey(
        Metric, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Empty: all of them."
    )
    uarchs = words(60, "Microarchitectures; empty: all of the finding.")
    reason = models.TextField()
    person = models.CharField(max_length=LONGEST_ACTOR)
    expires_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason="") & ~Q(person=""), name="acceptance_says_who_and_why")
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"finding {self.finding_id} accepted by {self.person}"


FIRST_ROUND = 1


class BisectionState(models.TextChoices):
    ENDS = "ends", "both ends are being verified"
    SEARCHING = "searching", "the revisions between are being measured"
    CHECKING = "checking", "the culprit and its revert are being measured"
    FOUND = "found", "found"
    GAVE_UP = "gave-up", "cannot be told"
    CANCELED = "canceled", "no longer wanted"


class Bisection(Stateful):
    """The search for the culprit of a finding on one machine, by one cell that moved there.

    Bisections of one finding share their builds: they ask for the same revisions while their intervals are equal.
    """

    State = BisectionState

    NEXT: ClassVar = {
        BisectionState.ENDS: frozenset({BisectionState.SEARCHING, BisectionState.GAVE_UP, BisectionState.CANCELED}),
        # Found without a check: one of several that cannot be told apart.
        BisectionState.SEARCHING: frozenset(
            {BisectionState.CHECKING, BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED}
        ),
        BisectionState.CHECKING: frozenset({BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED}),
        # Asked for once more: another round. What was found stays found.
        BisectionState.GAVE_UP: frozenset({BisectionState.ENDS}),
        # What nobody asked for any more may have nothing to look for when somebody would again.
        BisectionState.CANCELED: frozenset({BisectionState.ENDS, BisectionState.GAVE_UP}),
    }
    FINAL: ClassVar = frozenset({BisectionState.FOUND, BisectionState.GAVE_UP, BisectionState.CANCELED})

    finding = models.ForeignKey(Finding, on_delete=models.PROTECT, related_name="bisections")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="bisections")
    target = models.ForeignKey(
        Comparison, on_delete=models.PROTECT, related_name="+", help_text="The cell whose change is looked for."
    )
    revisions = ArrayField(
        models.CharField(max_length=40), help_text="Commits in their order, the good end first, the bad end last."
    )
    low = models.PositiveIntegerField(default=0, help_text="Index of the last revision known to be good.")
    high = models.PositiveIntegerField(help_text="Index of the first revision known to be bad.")
    round = models.PositiveIntegerField(default=FIRST_ROUND, help_text="Counted up when it is searched once more.")
    effect = models.FloatField(help_text="Logarithm of bad / good, as it was measured at the ends.")
    culprit = models.ForeignKey(
        Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="bisections_of_it"
    )

    class Meta:
        constraints = [
            state_check(BisectionState, "bisection_state_known"),
            models.UniqueConstraint(fields=["finding", "machine"], name="bisection_once"),
            models.CheckConstraint(condition=Q(low__lt=models.F("high")), name="bisection_has_interval"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"bisection {self.pk} of finding {self.finding_id} on {self.machine.name}"

    def current_steps(self) -> "models.QuerySet[BisectionStep]":
        """Those of its last round: what earlier ones told, tried and spent counts no more."""
        return BisectionStep.objects.filter(bisection=self.pk, round=self.round)


class BisectionStep(models.Model):
    """One revision that was asked for, and what it said."""

    class Kind(models.TextChoices):
        ENDS = "ends", "both ends"
        MIDDLE = "middle", "a revision between"
        CULPRIT = "culprit", "the culprit against its parent"
        REVERT = "revert", "the bad end without the culprit"

    class Answer(models.TextChoices):
        GOOD = "good", "without the change"
        BAD = "bad", "with the change"
        SKIPPED = "skipped", "does not build or boot"
        UNSURE = "unsure", "cannot be told"

    bisection = models.ForeignKey(Bisection, on_delete=models.CASCADE, related_name="steps")
    # Over all rounds: trials are named by it.
    number = models.PositiveIntegerField()
    round = models.PositiveIntegerField(default=FIRST_ROUND)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    index = models.PositiveIntegerField(null=True, blank=True, help_text="Of `revisions`; empty for the revert.")
    trial = models.ForeignKey(Trial, null=True, blank=True, on_delete=models.PROTECT, related_name="bisection_steps")
    answer = models.CharField(max_length=8, choices=Answer.choices, blank=True, help_text="Empty: being measured.")
    ratio = models.FloatField(null=True, blank=True, help_text="This revision / good end, in the target's metric.")
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["bisection", "number"], name="bisection_step_once"),
            models.CheckConstraint(
                condition=Q(kind__in=["ends", "middle", "culprit", "revert"]), name="bisection_step_kind_known"
            ),
            models.CheckConstraint(
                condition=Q(answer__in=["", "good", "bad", "skipped", "unsure"]), name="bisection_step_answer_known"
            ),
        ]
        ordering = ["bisection", "number"]

    def __str__(self) -> str:
        return f"step {self.number} of bisection {self.bisection_id}"
