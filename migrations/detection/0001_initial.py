import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import server.core.clock
import server.core.reasons
import server.core.states


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("core", "0001_initial"),
        ("lab", "0001_initial"),
        ("results", "0001_initial"),
        ("sources", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Comparison",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("improved", "improved"),
                            ("regressed", "regressed"),
                            ("unchanged", "unchanged"),
                            ("inconclusive", "inconclusive"),
                        ],
                        max_length=12,
                    ),
                ),
                ("reason", models.TextField(blank=True, help_text="Why it could not be judged, for people.")),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                ("base_boots", models.PositiveIntegerField()),
                (
                    "base_mean",
                    models.FloatField(help_text="Mean of the boots' values, in the metric's unit.", null=True),
                ),
                (
                    "base_sd",
                    models.FloatField(help_text="Standard deviation between boots, in the metric's unit.", null=True),
                ),
                ("patched_boots", models.PositiveIntegerField()),
                ("patched_mean", models.FloatField(null=True)),
                ("patched_sd", models.FloatField(null=True)),
                ("ratio", models.FloatField(help_text="patched / base", null=True)),
                ("ratio_low", models.FloatField(help_text="95 % interval", null=True)),
                ("ratio_high", models.FloatField(null=True)),
                (
                    "p_value",
                    models.FloatField(help_text="Against no change, over the averaged error structures", null=True),
                ),
                (
                    "p_adjusted",
                    models.FloatField(
                        help_text="Benjamini-Hochberg over the cells of the machine, times the number of machines",
                        null=True,
                    ),
                ),
                ("p_rank", models.FloatField(help_text="Exact rank test on boots", null=True)),
                ("family_size", models.PositiveIntegerField()),
                ("min_effect", models.FloatField(help_text="Smallest change worth a verdict, as a fraction.")),
                (
                    "mde",
                    models.FloatField(help_text="Smallest change that would have been seen, as a fraction.", null=True),
                ),
                (
                    "flags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=40), blank=True, default=list, size=None
                    ),
                ),
                ("computed_at", models.DateTimeField(auto_now_add=True)),
                (
                    "case",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="comparisons", to="results.case"
                    ),
                ),
                (
                    "core_type",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="comparisons", to="lab.coretype"
                    ),
                ),
                (
                    "metric",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="comparisons", to="results.metric"
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="comparisons", to="lab.session"
                    ),
                ),
            ],
            options={
                "ordering": ["session", "case", "metric"],
            },
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(max_length=20)),
                ("reason", models.TextField(blank=True, default="", help_text="Why it is in this state, for people.")),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                ("state_since", models.DateTimeField(default=server.core.clock.now)),
                ("trace", models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("regressed", "regressed"),
                            ("improved", "improved"),
                            ("split", "split: regressed somewhere, improved elsewhere"),
                            ("unchanged", "unchanged"),
                            ("inconclusive", "inconclusive"),
                        ],
                        max_length=12,
                    ),
                ),
                ("headline", models.TextField(help_text="One line that names each microarchitecture.")),
                ("virtual", models.BooleanField(help_text="From virtual machines: not evidence.")),
                (
                    "canary",
                    models.BooleanField(default=False, help_text="Of a series that the service posted to itself."),
                ),
                ("identical", models.BooleanField(default=False, help_text="Both kernels are the same image.")),
                (
                    "news",
                    models.BooleanField(
                        default=True,
                        help_text="It says or is something else since it was last looked at for what is to be told.",
                    ),
                ),
                (
                    "gaps",
                    models.JSONField(
                        blank=True, default=list, help_text="What was wanted and has no result, with the reason."
                    ),
                ),
                ("explanations", models.JSONField(blank=True, default=list, help_text="Facts that separate machines.")),
                ("counters", models.JSONField(blank=True, default=list, help_text="Counters that moved with it.")),
                ("checks", models.JSONField(blank=True, default=list, help_text="What was checked, and the answer.")),
                (
                    "after",
                    models.ForeignKey(
                        blank=True,
                        help_text="Measured with it; it came no later.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.revision",
                    ),
                ),
                (
                    "before",
                    models.ForeignKey(
                        blank=True,
                        help_text="Measured without it; it came after.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.revision",
                    ),
                ),
                (
                    "branch",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="findings",
                        to="sources.branch",
                    ),
                ),
                (
                    "culprit",
                    models.ForeignKey(
                        blank=True,
                        help_text="The revision that made it, where all machines agree on one.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="findings_of_it",
                        to="sources.revision",
                    ),
                ),
                (
                    "fix",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="findings_fixed_by_it",
                        to="sources.revision",
                    ),
                ),
                (
                    "promised_fix",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Subject of the commit that is to mend it, as a person says.",
                        max_length=300,
                    ),
                ),
                (
                    "assignee",
                    models.ForeignKey(
                        blank=True,
                        help_text="Who looks after it.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="findings",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "previous",
                    models.ForeignKey(
                        blank=True,
                        help_text="That of the version before.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="following",
                        to="detection.finding",
                    ),
                ),
                (
                    "series",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="finding",
                        to="sources.series",
                    ),
                ),
                (
                    "trial",
                    models.OneToOneField(
                        blank=True,
                        help_text="What judged it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="finding",
                        to="lab.trial",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Bisection",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(max_length=20)),
                ("reason", models.TextField(blank=True, default="", help_text="Why it is in this state, for people.")),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                ("state_since", models.DateTimeField(default=server.core.clock.now)),
                ("trace", models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "revisions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=40),
                        help_text="Commits in their order, the good end first, the bad end last.",
                        size=None,
                    ),
                ),
                (
                    "low",
                    models.PositiveIntegerField(default=0, help_text="Index of the last revision known to be good."),
                ),
                ("high", models.PositiveIntegerField(help_text="Index of the first revision known to be bad.")),
                (
                    "round",
                    models.PositiveIntegerField(default=1, help_text="Counted up when it is searched once more."),
                ),
                ("effect", models.FloatField(help_text="Logarithm of bad / good, as it was measured at the ends.")),
                (
                    "culprit",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bisections_of_it",
                        to="sources.revision",
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="bisections", to="lab.machine"
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        help_text="The cell whose change is looked for.",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="detection.comparison",
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="bisections", to="detection.finding"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Acceptance",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "uarchs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Microarchitectures; empty: all of the finding.",
                        size=None,
                    ),
                ),
                ("reason", models.TextField()),
                ("person", models.CharField(max_length=230)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "metric",
                    models.ForeignKey(
                        blank=True,
                        help_text="Empty: all of them.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="results.metric",
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="acceptances", to="detection.finding"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="FindingTrial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "finding",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="asked", to="detection.finding"
                    ),
                ),
                (
                    "trial",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="asked_by", to="lab.trial"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="FindingVerdict",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("improved", "improved"),
                            ("regressed", "regressed"),
                            ("unchanged", "unchanged"),
                            ("inconclusive", "inconclusive"),
                            ("split", "split between cases"),
                        ],
                        max_length=12,
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                (
                    "mde",
                    models.FloatField(help_text="Largest of the unchanged cells' smallest visible effects.", null=True),
                ),
                (
                    "mde_half",
                    models.FloatField(help_text="What half of the unchanged cells would have seen.", null=True),
                ),
                (
                    "told",
                    models.PositiveIntegerField(db_default=0, default=0, help_text="Cells that have a verdict."),
                ),
                (
                    "untold",
                    models.PositiveIntegerField(db_default=0, default=0, help_text="Cells that could not be told."),
                ),
                (
                    "blind",
                    models.PositiveIntegerField(
                        db_default=0, default=0, help_text="Of these, cells without any figure."
                    ),
                ),
                (
                    "missed",
                    models.FloatField(help_text="Largest change that the others of these may hide.", null=True),
                ),
                (
                    "comparison",
                    models.ForeignKey(
                        help_text="The cell that moved most.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="detection.comparison",
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="verdicts", to="detection.finding"
                    ),
                ),
                (
                    "uarch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="lab.microarchitecture"
                    ),
                ),
            ],
            options={
                "ordering": ["finding", "uarch__name"],
            },
        ),
        migrations.CreateModel(
            name="FleetState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "virtual",
                    models.BooleanField(help_text="Virtual machines are never judged together with physical ones."),
                ),
                (
                    "events",
                    models.JSONField(
                        blank=True, default=list, help_text="Machine and place of the events among the last points."
                    ),
                ),
                ("observed", models.PositiveIntegerField(default=0, help_text="How many heads entered its timelines.")),
                (
                    "newest_place",
                    models.PositiveIntegerField(blank=True, help_text="Of these; an earlier head is late.", null=True),
                ),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="fleets", to="sources.branch"
                    ),
                ),
                (
                    "reference",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sources.revision"
                    ),
                ),
            ],
            options={
                "ordering": ["branch", "reference"],
            },
        ),
        migrations.CreateModel(
            name="MachineQuestion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(max_length=20)),
                ("reason", models.TextField(blank=True, default="", help_text="Why it is in this state, for people.")),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                ("state_since", models.DateTimeField(default=server.core.clock.now)),
                ("trace", models.CharField(db_index=True, default=server.core.states.new_trace, max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "key",
                    models.CharField(
                        help_text="What is asked: asking twice makes one question.", max_length=200, unique=True
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("disagreement", "two machines of one microarchitecture disagree"),
                            ("event", "most of its timelines moved at once"),
                            ("drift", "equal kernels differ more than they used to"),
                            ("base", "a known kernel measures otherwise than before"),
                        ],
                        max_length=12,
                    ),
                ),
                ("detail", models.TextField(help_text="What was seen, for people.")),
                ("place", models.PositiveIntegerField(blank=True, help_text="Of the branch, for an event.", null=True)),
                (
                    "branch",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="sources.branch",
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="questions",
                        to="detection.finding",
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="questions", to="lab.machine"
                    ),
                ),
                (
                    "quarantine",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        help_text="That it led to.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="core.transition",
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        blank=True,
                        help_text="That showed a drift.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="lab.trial",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="MeasuredHead",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveIntegerField()),
                (
                    "observed_at",
                    models.DateTimeField(blank=True, help_text="When its points entered the timelines.", null=True),
                ),
                (
                    "observed_as",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="How many heads of the fleet were there with it: late ones come after earlier.",
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="measured", to="sources.branch"
                    ),
                ),
                (
                    "fleet",
                    models.ForeignKey(
                        blank=True,
                        help_text="Whose timelines got its points; empty: it had none.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="heads",
                        to="detection.fleetstate",
                    ),
                ),
                (
                    "reference",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sources.revision"
                    ),
                ),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sources.revision"
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="heads", to="lab.trial"
                    ),
                ),
            ],
            options={
                "ordering": ["branch", "place"],
            },
        ),
        migrations.CreateModel(
            name="NoiseProfile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("comparisons", models.PositiveIntegerField(help_text="Of equal kernels.")),
                ("false_alarms", models.PositiveIntegerField(help_text="Of these, those that claimed a change.")),
                (
                    "rejections",
                    models.PositiveIntegerField(help_text="Of these, those whose p-value was at most 0.05."),
                ),
                ("change_95", models.FloatField(help_text="95th percentile of their changes, as a fraction.")),
                ("boot_sd", models.FloatField(help_text="Standard deviation between boots, on logarithms.", null=True)),
                ("mde", models.FloatField(help_text="Median of what would have been seen, as a fraction.", null=True)),
                (
                    "changes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(),
                        help_text="Logarithms of the ratios, oldest first; the last of them.",
                        size=None,
                    ),
                ),
                ("last_at", models.DateTimeField(help_text="Of the last comparison.")),
                (
                    "case",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="results.case"),
                ),
                (
                    "core_type",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="lab.coretype"),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="noise_profiles", to="lab.machine"
                    ),
                ),
                (
                    "metric",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="results.metric"
                    ),
                ),
            ],
            options={
                "ordering": ["machine", "case", "metric"],
            },
        ),
        migrations.CreateModel(
            name="Timeline",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "watch",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="What is remembered between two points (server/stats/changepoints/watch.py).",
                    ),
                ),
                ("points_seen", models.PositiveIntegerField(default=0)),
                ("last_place", models.PositiveIntegerField(default=0, help_text="Of the newest point.")),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="timelines", to="sources.branch"
                    ),
                ),
                (
                    "case",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="timelines", to="results.case"
                    ),
                ),
                (
                    "core_type",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="timelines", to="lab.coretype"
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="timelines", to="lab.machine"
                    ),
                ),
                (
                    "metric",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="timelines", to="results.metric"
                    ),
                ),
                (
                    "reference",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sources.revision"
                    ),
                ),
            ],
            options={
                "ordering": ["branch", "machine", "case", "metric"],
            },
        ),
        migrations.CreateModel(
            name="ChangePoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "first_place",
                    models.PositiveIntegerField(help_text="Where it was first published: it is known by this."),
                ),
                ("place", models.PositiveIntegerField(help_text="First head of the new level.")),
                ("before_place", models.PositiveIntegerField(help_text="Last head of the old level.")),
                ("effect", models.FloatField(help_text="Logarithm of after / before.")),
                ("score", models.FloatField(help_text="-log10 of the chance")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("suspect", "suspected"),
                            ("settled", "settled"),
                            ("withdrawn", "withdrawn"),
                            ("machine", "an event of its machine"),
                        ],
                        max_length=10,
                    ),
                ),
                ("published_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "finding",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="change_points",
                        to="detection.finding",
                    ),
                ),
                (
                    "timeline",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="change_points",
                        to="detection.timeline",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="TimelinePoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveIntegerField(help_text="Of the head.")),
                ("ratio", models.FloatField(help_text="head / reference")),
                ("ratio_low", models.FloatField(help_text="95 % interval", null=True)),
                ("ratio_high", models.FloatField(null=True)),
                (
                    "comparison",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="point", to="detection.comparison"
                    ),
                ),
                (
                    "head",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="points", to="detection.measuredhead"
                    ),
                ),
                (
                    "timeline",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="points", to="detection.timeline"
                    ),
                ),
            ],
            options={
                "ordering": ["timeline", "place"],
            },
        ),
        migrations.CreateModel(
            name="BisectionStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("round", models.PositiveIntegerField(default=1)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("ends", "both ends"),
                            ("middle", "a revision between"),
                            ("culprit", "the culprit against its parent"),
                            ("revert", "the bad end without the culprit"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "index",
                    models.PositiveIntegerField(
                        blank=True, help_text="Of `revisions`; empty for the revert.", null=True
                    ),
                ),
                (
                    "answer",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("good", "without the change"),
                            ("bad", "with the change"),
                            ("skipped", "does not build or boot"),
                            ("unsure", "cannot be told"),
                        ],
                        help_text="Empty: being measured.",
                        max_length=8,
                    ),
                ),
                (
                    "ratio",
                    models.FloatField(
                        blank=True, help_text="This revision / good end, in the target's metric.", null=True
                    ),
                ),
                ("reason", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "bisection",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="detection.bisection"
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bisection_steps",
                        to="lab.trial",
                    ),
                ),
            ],
            options={
                "ordering": ["bisection", "number"],
                "constraints": [
                    models.UniqueConstraint(fields=("bisection", "number"), name="bisection_step_once"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["ends", "middle", "culprit", "revert"])),
                        name="bisection_step_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("answer__in", ["", "good", "bad", "skipped", "unsure"])),
                        name="bisection_step_answer_known",
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="comparison",
            index=models.Index(
                condition=models.Q(("verdict__in", ("regressed", "improved"))),
                fields=["verdict", "ratio"],
                name="comparison_moved",
            ),
        ),
        migrations.AddIndex(
            model_name="comparison",
            index=models.Index(
                condition=models.Q(("verdict__in", ("regressed", "improved"))),
                fields=["session", "case", "metric"],
                name="comparison_moved_of_session",
            ),
        ),
        migrations.AddConstraint(
            model_name="comparison",
            constraint=models.UniqueConstraint(
                fields=("session", "case", "metric", "core_type"), name="comparison_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="comparison",
            constraint=models.CheckConstraint(
                condition=models.Q(("verdict__in", ["improved", "regressed", "unchanged", "inconclusive"])),
                name="comparison_verdict_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="comparison",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("verdict", "unchanged"), _negated=True), ("mde__isnull", False), _connector="OR"
                ),
                name="unchanged_says_its_mde",
            ),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(fields=["state", "-id"], name="finding_in_state"),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(fields=["kind", "-id"], name="finding_of_kind"),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(fields=["state_since"], name="finding_moved"),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(fields=["created_at"], name="finding_since"),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(condition=models.Q(("news", True)), fields=["id"], name="finding_with_news"),
        ),
        migrations.AddIndex(
            model_name="findingverdict",
            index=models.Index(fields=["uarch", "verdict", "-finding"], name="finding_verdict_on_uarch"),
        ),
        migrations.AddConstraint(
            model_name="finding",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "candidate",
                            "confirmed",
                            "bisecting",
                            "reported",
                            "fixed",
                            "accepted",
                            "invalid",
                            "superseded",
                        ],
                    )
                ),
                name="finding_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="finding",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["regressed", "improved", "split", "unchanged", "inconclusive"])),
                name="finding_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="finding",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("branch__isnull", True), ("series__isnull", False), ("trial__isnull", False)),
                    models.Q(
                        ("after__isnull", False),
                        ("before__isnull", False),
                        ("branch__isnull", False),
                        ("series__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="finding_of_series_or_branch",
            ),
        ),
        migrations.AddConstraint(
            model_name="finding",
            constraint=models.UniqueConstraint(fields=("branch", "before", "after"), name="finding_of_boundary_once"),
        ),
        migrations.AddConstraint(
            model_name="bisection",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["ends", "searching", "checking", "found", "gave-up", "canceled"])),
                name="bisection_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="bisection",
            constraint=models.UniqueConstraint(fields=("finding", "machine"), name="bisection_once"),
        ),
        migrations.AddConstraint(
            model_name="bisection",
            constraint=models.CheckConstraint(
                condition=models.Q(("low__lt", models.F("high"))), name="bisection_has_interval"
            ),
        ),
        migrations.AddConstraint(
            model_name="acceptance",
            constraint=models.CheckConstraint(
                condition=models.Q(models.Q(("reason", ""), _negated=True), models.Q(("person", ""), _negated=True)),
                name="acceptance_says_who_and_why",
            ),
        ),
        migrations.AddConstraint(
            model_name="findingverdict",
            constraint=models.UniqueConstraint(fields=("finding", "uarch"), name="finding_verdict_once"),
        ),
        migrations.AddConstraint(
            model_name="findingverdict",
            constraint=models.CheckConstraint(
                condition=models.Q(("verdict__in", ["improved", "regressed", "unchanged", "inconclusive", "split"])),
                name="finding_verdict_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="fleetstate",
            constraint=models.UniqueConstraint(fields=("branch", "reference", "virtual"), name="fleet_state_once"),
        ),
        migrations.AddConstraint(
            model_name="machinequestion",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["open", "answered"])), name="machine_question_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="machinequestion",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["disagreement", "event", "drift", "base"])),
                name="machine_question_kind_known",
            ),
        ),
        migrations.AddIndex(
            model_name="measuredhead",
            index=models.Index(fields=["branch", "reference", "-place"], name="measured_head_place"),
        ),
        migrations.AddIndex(
            model_name="measuredhead",
            index=models.Index(
                condition=models.Q(("observed_at", None)), fields=["branch", "place"], name="measured_head_waiting"
            ),
        ),
        migrations.AddIndex(
            model_name="measuredhead",
            index=models.Index(fields=["fleet", "-place"], name="measured_head_of_fleet"),
        ),
        migrations.AddConstraint(
            model_name="measuredhead",
            constraint=models.UniqueConstraint(fields=("branch", "reference", "revision"), name="measured_head_once"),
        ),
        migrations.AddIndex(
            model_name="noiseprofile",
            index=models.Index(
                fields=["machine"],
                include=("comparisons", "false_alarms", "rejections", "last_at"),
                name="noise_sums",
            ),
        ),
        migrations.AddConstraint(
            model_name="noiseprofile",
            constraint=models.UniqueConstraint(
                fields=("machine", "case", "metric", "core_type"), name="noise_profile_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="timeline",
            constraint=models.UniqueConstraint(
                fields=("branch", "reference", "machine", "case", "metric", "core_type"), name="timeline_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="changepoint",
            constraint=models.UniqueConstraint(fields=("timeline", "first_place"), name="change_point_once"),
        ),
        migrations.AddConstraint(
            model_name="changepoint",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["suspect", "settled", "withdrawn", "machine"])),
                name="change_point_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="timelinepoint",
            constraint=models.UniqueConstraint(fields=("timeline", "place"), name="timeline_point_once"),
        ),
        migrations.AddIndex(
            model_name="finding",
            index=models.Index(
                condition=models.Q(
                    ("kind__in", ["regressed", "split", "improved"]),
                    ("state__in", ["candidate", "confirmed", "bisecting", "reported"]),
                ),
                fields=["-id"],
                name="finding_open",
            ),
        ),
        migrations.AddField(
            model_name="finding",
            name="same_as",
            field=models.ForeignKey(
                blank=True,
                help_text="The finding that it stands down for: that one tells of the same change.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="duplicates",
                to="detection.finding",
            ),
        ),
        migrations.CreateModel(
            name="Recomputation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "code",
                    models.CharField(
                        help_text="Version and hash of the program: no other one takes part.", max_length=60
                    ),
                ),
                ("begun_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "ended_at",
                    models.DateTimeField(blank=True, help_text="When its report was written.", null=True),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.CreateModel(
            name="RecomputationChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("finding", "findings"),
                            ("trial", "trials that made no finding"),
                            ("noise", "noise of machines"),
                            ("fleet", "timelines of a branch"),
                        ],
                        max_length=10,
                    ),
                ),
                ("first", models.BigIntegerField(help_text="Id of its first row.")),
                ("last", models.BigIntegerField(help_text="Id of its last row.")),
                (
                    "size",
                    models.PositiveIntegerField(
                        help_text="How many rows it had when it was planned; of timelines: heads."
                    ),
                ),
                (
                    "reached",
                    models.BigIntegerField(default=0, help_text="Id of the last row that is done; of timelines: heads."),
                ),
                ("taken", models.PositiveIntegerField(default=0, help_text="How many of its size are done.")),
                ("checked", models.PositiveIntegerField(default=0, help_text="How many rows could be computed.")),
                (
                    "left",
                    models.PositiveIntegerField(
                        default=0, help_text="Of these, whose measurements are in the archive alone."
                    ),
                ),
                ("found", models.PositiveIntegerField(default=0, help_text="How many fields differ.")),
                (
                    "differences",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        default=list,
                        help_text="The first of them.",
                        size=None,
                    ),
                ),
                (
                    "errors",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        default=list,
                        help_text="Rows that could not be computed.",
                        size=None,
                    ),
                ),
                ("rest", models.JSONField(blank=True, help_text="What timelines need to go on.", null=True)),
                (
                    "tries",
                    models.PositiveSmallIntegerField(default=0, help_text="How often the next row was begun."),
                ),
                ("seconds", models.FloatField(default=0.0, help_text="That it took so far.")),
                (
                    "moved_at",
                    models.DateTimeField(blank=True, help_text="When a worker wrote here.", null=True),
                ),
                ("done_at", models.DateTimeField(blank=True, null=True)),
                (
                    "recomputation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="detection.recomputation",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["finding", "trial", "noise", "fleet"])),
                        name="recomputation_chunk_kind_known",
                    )
                ],
            },
        ),
    ]
