import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from server.core.rows.partitions import VALUES, cutting

# A row for each case of a packed one. 256 is `server.results.models.PLACES`.
_MEASUREMENT = """
CREATE VIEW results_measurement AS
SELECT p.id * 256 + n AS id, p.boot_id, p.cases[n] AS case_id, p.metric_id, p.core_type_id, p.version_id,
    p.recorded_at, coalesce(p.warmups[n], 0) AS warmup,
    CASE WHEN p.ends IS NULL THEN 1 ELSE p.ends[n] - coalesce(p.ends[n - 1], 0) END AS number,
    CASE WHEN p.ends IS NULL THEN p."values"[n:n]
        ELSE p."values"[coalesce(p.ends[n - 1], 0) + 1 : p.ends[n]] END AS "values",
    p.ends IS NULL AS summarised
FROM (
    SELECT id, boot_id, metric_id, core_type_id, version_id, recorded_at, cases, warmups, ends, "values"
    FROM results_packedvalues
    UNION ALL
    SELECT id, boot_id, metric_id, core_type_id, version_id, recorded_at, cases, NULL, NULL, medians
    FROM results_summary
) AS p CROSS JOIN LATERAL generate_subscripts(p.cases, 1) AS n
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("lab", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Benchmark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("title", models.CharField(max_length=200)),
                (
                    "version",
                    models.CharField(
                        help_text="Hash of its sources: another program is another benchmark.", max_length=64
                    ),
                ),
                (
                    "words",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="What words of its cases and their parameters mean: texts by word.",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="BenchmarkVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.CharField(help_text="As `Benchmark.version` was.", max_length=64)),
                (
                    "benchmark",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="results.benchmark",
                    ),
                ),
            ],
            options={
                "ordering": ["benchmark__name", "id"],
            },
        ),
        migrations.CreateModel(
            name="Case",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60)),
                ("title", models.CharField(max_length=200)),
                (
                    "parameters",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="What tells it from other cases of its benchmark: texts by name.",
                    ),
                ),
                ("runs", models.PositiveIntegerField(help_text="Values wanted from each boot, warm-up included.")),
                (
                    "warmup",
                    models.PositiveIntegerField(
                        default=1, help_text="First values of a boot that are kept but not judged."
                    ),
                ),
                ("timeout_seconds", models.PositiveIntegerField(default=60)),
                ("enabled", models.BooleanField(default=True)),
                (
                    "benchmark",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="cases", to="results.benchmark"
                    ),
                ),
            ],
            options={
                "ordering": ["benchmark__name", "name"],
            },
        ),
        migrations.CreateModel(
            name="Metric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60)),
                ("title", models.CharField(max_length=200)),
                ("unit", models.CharField(max_length=40)),
                (
                    "better",
                    models.CharField(
                        choices=[
                            ("lower", "lower is better"),
                            ("higher", "higher is better"),
                            ("none", "neither: it explains, and is not judged"),
                        ],
                        max_length=6,
                    ),
                ),
                (
                    "resolution",
                    models.FloatField(default=0.0, help_text="Smallest step between two values, in `unit`."),
                ),
                (
                    "exact",
                    models.BooleanField(
                        default=False, help_text="Two boots of one kernel give the same value to the last digit."
                    ),
                ),
                (
                    "benchmark",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="metrics", to="results.benchmark"
                    ),
                ),
            ],
            options={
                "ordering": ["benchmark__name", "name"],
            },
        ),
        migrations.CreateModel(
            name="PackedValues",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "boot",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="packed",
                        to="lab.boot",
                    ),
                ),
                (
                    "metric",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="packed",
                        to="results.metric",
                    ),
                ),
                (
                    "core_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="packed",
                        to="lab.coretype",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="results.benchmarkversion",
                    ),
                ),
                ("recorded_at", models.DateTimeField(auto_now_add=True)),
                (
                    "first_case",
                    models.IntegerField(help_text="As `cases` begins; cases that find no room are in rows after it."),
                ),
                (
                    "cases",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        help_text="Ids of `Case`.",
                        size=None,
                    ),
                ),
                (
                    "warmups",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        help_text="Of each case.",
                        size=None,
                    ),
                ),
                (
                    "ends",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        help_text="How many of `values` there are up to the end of each case.",
                        size=None,
                    ),
                ),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(),
                        help_text="In the order they were measured, warm-up first, case by case.",
                        size=None,
                    ),
                ),
            ],
            options={
                "ordering": ["boot", "metric", "core_type", "first_case"],
                "verbose_name_plural": "packed values",
            },
        ),
        migrations.RunSQL(cutting(VALUES, "id, boot_id"), migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Measurement",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        help_text="Of the row and the place in it, from 1.", primary_key=True, serialize=False
                    ),
                ),
                ("recorded_at", models.DateTimeField()),
                ("warmup", models.PositiveIntegerField()),
                ("number", models.PositiveIntegerField(help_text="Of values; to be had without reading them.")),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(),
                        help_text="In the order they were measured, warm-up first.",
                        size=None,
                    ),
                ),
                (
                    "summarised",
                    models.BooleanField(help_text="Its only value is the median of those that have left."),
                ),
            ],
            options={
                "ordering": ["boot", "case", "metric"],
                "managed": False,
            },
        ),
        migrations.AddConstraint(
            model_name="benchmarkversion",
            constraint=models.UniqueConstraint(fields=("benchmark", "hash"), name="benchmark_version_once"),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.UniqueConstraint(fields=("benchmark", "name"), name="case_once"),
        ),
        migrations.AddConstraint(
            model_name="case",
            constraint=models.CheckConstraint(
                condition=models.Q(("runs__gt", models.F("warmup"))), name="case_has_runs"
            ),
        ),
        migrations.AddConstraint(
            model_name="metric",
            constraint=models.UniqueConstraint(fields=("benchmark", "name"), name="metric_once"),
        ),
        migrations.AddConstraint(
            model_name="metric",
            constraint=models.CheckConstraint(
                condition=models.Q(("better__in", ["lower", "higher", "none"])), name="metric_better_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="packedvalues",
            constraint=models.UniqueConstraint(
                fields=("boot", "metric", "core_type", "first_case"), name="packed_values_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="packedvalues",
            constraint=models.CheckConstraint(
                condition=models.Q(("values__len__gt", 0)), name="packed_values_are_some"
            ),
        ),
        migrations.AddConstraint(
            model_name="packedvalues",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cases__len__lt", 256),
                    ("ends__len", models.F("cases__len")),
                    ("first_case", models.F("cases__0")),
                    ("warmups__len", models.F("cases__len")),
                ),
                name="packed_values_agree",
            ),
        ),
        migrations.CreateModel(
            name="ArchivePart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("samples", "samples"),
                            ("conditions", "conditions of boots"),
                            ("transitions", "steps of boots and attempts"),
                            ("logs", "logs of agents"),
                        ],
                        max_length=12,
                    ),
                ),
                ("month", models.DateField(help_text="Its first day; that in which the sessions were planned.")),
                (
                    "number",
                    models.PositiveIntegerField(
                        help_text="Of the month, from 1: one of very many sessions has several."
                    ),
                ),
                (
                    "sha256",
                    models.CharField(db_index=True, help_text="Of the file, and its name in the store.", max_length=64),
                ),
                ("manifest", models.CharField(db_index=True, help_text="The same of its manifest.", max_length=64)),
                ("size", models.BigIntegerField(help_text="In bytes.")),
                ("rows", models.BigIntegerField()),
                ("sessions", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["kind", "month", "number"],
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "month", "number"), name="archive_part_once"),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["samples", "conditions", "transitions", "logs"])),
                        name="archive_part_kind_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptMonth",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("samples", "samples"),
                            ("conditions", "conditions of boots"),
                            ("transitions", "steps of boots and attempts"),
                            ("logs", "logs of agents"),
                        ],
                        max_length=12,
                    ),
                ),
                ("month", models.DateField()),
                (
                    "held",
                    models.PositiveIntegerField(
                        default=0, help_text="Sessions that stay whole for somebody who uses them."
                    ),
                ),
                ("is_over", models.BooleanField(default=False, help_text="Nothing of it is left to leave.")),
                ("looked_at", models.DateTimeField(help_text="By a sweep, the last time.")),
            ],
            options={
                "ordering": ["kind", "month"],
                "constraints": [models.UniqueConstraint(fields=("kind", "month"), name="kept_month_once")],
            },
        ),
        migrations.CreateModel(
            name="ArchivedSession",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("samples", "samples"),
                            ("conditions", "conditions of boots"),
                            ("transitions", "steps of boots and attempts"),
                            ("logs", "logs of agents"),
                        ],
                        max_length=12,
                    ),
                ),
                ("place", models.PositiveIntegerField(help_text="Its row group in the file, from 0.")),
                ("left_at", models.DateTimeField(blank=True, null=True)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="archived",
                        to="lab.session",
                    ),
                ),
                (
                    "part",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="of_sessions",
                        to="results.archivepart",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [
                    models.Index(condition=models.Q(("left_at", None)), fields=["id"], name="archived_and_still_here")
                ],
                "constraints": [models.UniqueConstraint(fields=("session", "kind"), name="archived_session_once")],
            },
        ),
        migrations.CreateModel(
            name="Summary",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        help_text="That of the row of which it stays.", primary_key=True, serialize=False
                    ),
                ),
                ("recorded_at", models.DateTimeField()),
                ("first_case", models.IntegerField()),
                (
                    "cases",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(), help_text="Ids of `Case`.", size=None
                    ),
                ),
                (
                    "medians",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(),
                        help_text="Of each case, of the values that were judged.",
                        size=None,
                    ),
                ),
                (
                    "boot",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="summaries",
                        to="lab.boot",
                    ),
                ),
                (
                    "core_type",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="lab.coretype"
                    ),
                ),
                (
                    "metric",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="results.metric",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="results.benchmarkversion",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "summaries",
                "ordering": ["boot", "metric", "core_type", "first_case"],
                "constraints": [
                    models.UniqueConstraint(fields=("boot", "metric", "core_type", "first_case"), name="summary_once"),
                    models.CheckConstraint(
                        condition=models.Q(("cases__len__lt", 256), ("medians__len", models.F("cases__len"))),
                        name="summary_agrees",
                    ),
                ],
            },
        ),
        migrations.RunSQL(_MEASUREMENT, "DROP VIEW results_measurement"),
    ]
