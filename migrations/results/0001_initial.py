import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


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
            name="Measurement",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("recorded_at", models.DateTimeField(auto_now_add=True)),
                ("warmup", models.PositiveIntegerField()),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(),
                        help_text="In the order they were measured, warm-up first.",
                        size=None,
                    ),
                ),
                (
                    "boot",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="measurements",
                        to="lab.boot",
                    ),
                ),
                (
                    "case",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="measurements",
                        to="results.case",
                    ),
                ),
                (
                    "core_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="measurements",
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
                (
                    "metric",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="measurements",
                        to="results.metric",
                    ),
                ),
            ],
            options={
                "ordering": ["boot", "case", "metric"],
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
            model_name="measurement",
            constraint=models.UniqueConstraint(fields=("boot", "case", "metric", "core_type"), name="measurement_once"),
        ),
        migrations.AddConstraint(
            model_name="measurement",
            constraint=models.CheckConstraint(
                condition=models.Q(("values__len__gt", 0)), name="measurement_has_values"
            ),
        ),
    ]
