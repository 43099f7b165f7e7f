import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import server.core.clock
import server.core.reasons
import server.core.states


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("sources", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ConfigFragment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("arch", models.CharField(blank=True, help_text="Empty: for every architecture.", max_length=20)),
                (
                    "lines",
                    models.TextField(
                        help_text="CONFIG_ lines; each must survive olddefconfig or the build is refused."
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Toolchain",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                (
                    "compiler",
                    models.CharField(
                        help_text="Program, for make's CC=; with a prefix when it crosses.", max_length=100
                    ),
                ),
                (
                    "family",
                    models.CharField(
                        choices=[("gcc", "GCC and binutils"), ("clang", "clang and LLVM's tools")],
                        default="gcc",
                        max_length=10,
                    ),
                ),
                (
                    "cross",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text='Prefix of the programs for each foreign architecture: {"arm64": "aarch64-linux-gnu-"}.',
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="KernelConfig",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("arch", models.CharField(max_length=20)),
                (
                    "base",
                    models.CharField(
                        default="allnoconfig", help_text="make target the fragment is merged over", max_length=60
                    ),
                ),
                (
                    "fragments",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Names of shared fragments, merged in this order.",
                        size=None,
                    ),
                ),
                (
                    "fragment",
                    models.TextField(
                        blank=True, help_text="CONFIG_ lines; each must survive olddefconfig or the build is refused."
                    ),
                ),
                ("perf", models.BooleanField(default=False, help_text="Build perf of the same tree, too.")),
                (
                    "layout_of",
                    models.ForeignKey(
                        blank=True,
                        help_text="The configuration of which this is another code layout.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="layouts",
                        to="builds.kernelconfig",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Build",
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
                ("tree_sha", models.CharField(max_length=40)),
                ("arch", models.CharField(max_length=20)),
                (
                    "recipe",
                    models.CharField(
                        help_text="Hash of what config and toolchain said when it was wanted; edited ones build anew.",
                        max_length=64,
                    ),
                ),
                (
                    "build_id",
                    models.CharField(
                        blank=True, help_text="GNU build id of vmlinux, as the kernel shows it", max_length=64
                    ),
                ),
                (
                    "text_hash",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="SHA-256 of vmlinux's text: two kernels with the same one run the same code.",
                        max_length=64,
                    ),
                ),
                (
                    "kernel_hash",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="SHA-256 of vmlinux's text and data: between two kernels with the same one is nothing to measure.",
                        max_length=64,
                    ),
                ),
                ("compiler_version", models.CharField(blank=True, max_length=200)),
                ("seconds", models.FloatField(blank=True, null=True)),
                (
                    "given_up",
                    models.BooleanField(
                        default=False,
                        help_text="Failed for our reasons, not the kernel's: another series that needs it tries again.",
                    ),
                ),
                (
                    "first_error",
                    models.TextField(blank=True, default="", help_text="Of its log, with its lines around."),
                ),
                (
                    "used_at",
                    models.DateTimeField(blank=True, help_text="When it was last wanted or measured.", null=True),
                ),
                ("pinned", models.BooleanField(default=False, help_text="Its files are never removed for room.")),
                ("log_tail", models.TextField(blank=True)),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="builds", to="sources.revision"
                    ),
                ),
                (
                    "config",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="builds", to="builds.kernelconfig"
                    ),
                ),
                (
                    "toolchain",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="builds", to="builds.toolchain"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Artifact",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("image", "bootable kernel image"),
                            ("config", ".config"),
                            ("system-map", "System.map"),
                            ("modules", "modules, and those of the benchmarks"),
                            ("perf", "perf of the same tree"),
                            ("log", "build log"),
                        ],
                        max_length=12,
                    ),
                ),
                ("sha256", models.CharField(db_index=True, max_length=64)),
                ("size", models.PositiveBigIntegerField(help_text="bytes")),
                ("removed_at", models.DateTimeField(blank=True, help_text="When its file was removed.", null=True)),
                ("removal", models.CharField(blank=True, default="", help_text="Why it was removed.", max_length=200)),
                (
                    "checked_at",
                    models.DateTimeField(blank=True, help_text="When its file was last found to be whole.", null=True),
                ),
                (
                    "build",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="artifacts", to="builds.build"
                    ),
                ),
            ],
            options={
                "ordering": ["build", "kind"],
                "constraints": [models.UniqueConstraint(fields=("build", "kind"), name="artifact_once")],
            },
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(condition=models.Q(("state", "wanted")), fields=["config"], name="build_waiting"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(
                condition=models.Q(("state__in", ["wanted", "dispatched", "running"])),
                fields=["state"],
                name="build_open",
            ),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(
                condition=models.Q(("build_id", ""), _negated=True), fields=["build_id"], name="build_of_id"
            ),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(
                condition=models.Q(("text_hash", ""), _negated=True), fields=["text_hash"], name="build_of_text"
            ),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["arch", "-id"], name="build_of_arch"),
        ),
        migrations.AddIndex(
            model_name="build",
            index=models.Index(fields=["created_at"], name="build_since"),
        ),
        migrations.AddConstraint(
            model_name="build",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["wanted", "dispatched", "running", "built", "failed", "canceled", "expired"])
                ),
                name="build_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="build",
            constraint=models.UniqueConstraint(
                fields=("tree_sha", "config", "toolchain", "arch", "recipe"), name="build_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="build",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "built"), _negated=True),
                    models.Q(("build_id", ""), _negated=True),
                    _connector="OR",
                ),
                name="built_has_id",
            ),
        ),
    ]
