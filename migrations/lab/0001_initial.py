import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import server.core.clock
import server.core.reasons
import server.core.states
from server.core.rows.partitions import CONDITIONS, cutting


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("builds", "0001_initial"),
        ("sources", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Boot",
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
                ("position", models.PositiveIntegerField(help_text="Order in the session, from 0")),
                (
                    "arm",
                    models.CharField(choices=[("base", "base kernel"), ("patched", "patched kernel")], max_length=8),
                ),
                (
                    "outcome",
                    models.CharField(
                        blank=True, help_text="measured, panic, no-boot ... (agent-protocol.md)", max_length=20
                    ),
                ),
                (
                    "started_by",
                    models.CharField(blank=True, help_text="Key of the attempt that boots it", max_length=60),
                ),
                (
                    "retries",
                    models.PositiveIntegerField(
                        default=0, help_text="Times it was planned again for infrastructure reasons"
                    ),
                ),
                (
                    "boot_id",
                    models.CharField(blank=True, help_text="The running kernel's own random boot_id", max_length=36),
                ),
                (
                    "build_id",
                    models.CharField(blank=True, help_text="GNU build id the running kernel showed", max_length=64),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "values_sha256",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Of all values that its result brought, to know it again by.",
                        max_length=64,
                    ),
                ),
                (
                    "notes",
                    models.JSONField(
                        blank=True, default=list, help_text="Cases that gave no measurement, with the reason."
                    ),
                ),
            ],
            options={
                "ordering": ["session", "position"],
            },
        ),
        migrations.CreateModel(
            name="Facts",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "sha256",
                    models.CharField(help_text="Of the document as canonical JSON.", max_length=64, unique=True),
                ),
                ("virtual", models.BooleanField(help_text="Whether the probe saw a hypervisor.")),
                (
                    "fingerprint",
                    models.CharField(
                        blank=True, help_text="Of hardware and firmware (server/lab/hosts/probes.py).", max_length=100
                    ),
                ),
                ("document", models.JSONField()),
            ],
            options={
                "verbose_name_plural": "facts",
            },
        ),
        migrations.CreateModel(
            name="Machine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("enabled", models.BooleanField(default=True)),
                (
                    "node",
                    models.CharField(
                        blank=True, default="", help_text="Its controller's name for it, if other.", max_length=60
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("idle", "waiting for work"),
                            ("reserved", "work was given to it"),
                            ("working", "working"),
                            ("returning", "on its way back from a session"),
                            ("power-cycling", "being switched off and on"),
                            ("offline", "not reached"),
                        ],
                        default="idle",
                        max_length=20,
                    ),
                ),
                ("state_reason", models.TextField(blank=True, default="")),
                ("state_since", models.DateTimeField(default=server.core.clock.now)),
                (
                    "health",
                    models.CharField(
                        choices=[
                            ("good", "good"),
                            ("unknown", "to be checked first"),
                            ("quarantined", "quarantined"),
                            ("maintenance", "in somebody's hands"),
                            ("retired", "retired"),
                        ],
                        default="good",
                        max_length=12,
                    ),
                ),
                ("health_reason", models.TextField(blank=True)),
                ("health_since", models.DateTimeField(default=server.core.clock.now)),
                (
                    "capabilities",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="What it has besides its CPU, for work that asks for it: cxl, numa, 1g-pages ...",
                        size=None,
                    ),
                ),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "virtual",
                    models.BooleanField(
                        default=False,
                        help_text="What it measures is no evidence: proved to be virtual, or doubted and nobody's word.",
                    ),
                ),
                (
                    "proved_virtual",
                    models.BooleanField(
                        default=False, help_text="Its registration or a probe says so: no word takes it back."
                    ),
                ),
                (
                    "doubts",
                    models.JSONField(
                        blank=True, default=dict, help_text="Why probes do not call it physical: sentences by code."
                    ),
                ),
                (
                    "physical_by",
                    models.CharField(blank=True, default="", help_text="Who said that it is.", max_length=150),
                ),
                ("physical_at", models.DateTimeField(blank=True, null=True)),
                ("physical_reason", models.TextField(blank=True, default="")),
                (
                    "clock",
                    models.CharField(
                        choices=[
                            ("wall", "wall-clock time"),
                            ("instructions", "counted instructions (1 ns each), blind to caches"),
                        ],
                        default="wall",
                        max_length=12,
                    ),
                ),
                ("boot_driver", models.CharField(default="qemu", max_length=10)),
                ("driver_options", models.JSONField(blank=True, default=dict)),
                ("boots_per_side", models.PositiveIntegerField(default=4)),
                (
                    "cases",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=121),
                        blank=True,
                        default=list,
                        help_text="What it measures, as BENCHMARK/CASE or patterns (mm-basic/*); empty: everything.",
                        size=None,
                    ),
                ),
                (
                    "health_hold",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="What alone lifts its quarantine, for people; empty: a health session that passes, too.",
                    ),
                ),
                (
                    "boot_id",
                    models.CharField(
                        blank=True, default="", help_text="Of the system that it was last seen in.", max_length=36
                    ),
                ),
                (
                    "safe",
                    models.BooleanField(
                        blank=True,
                        default=None,
                        help_text="Whether that was the safe kernel; null: not told.",
                        null=True,
                    ),
                ),
                (
                    "config",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="machines", to="builds.kernelconfig"
                    ),
                ),
                (
                    "health_build",
                    models.ForeignKey(
                        blank=True,
                        help_text="Kernel of its health sessions; empty: the newest of a watched tree that it can boot.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="builds.build",
                    ),
                ),
                (
                    "toolchain",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="machines", to="builds.toolchain"
                    ),
                ),
            ],
            options={
                "ordering": ["uarch__name", "name"],
            },
        ),
        migrations.CreateModel(
            name="Microarchitecture",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.SlugField(
                        help_text="As kernel people write it: zen3, haswell ...", max_length=60, unique=True
                    ),
                ),
                ("arch", models.CharField(max_length=20)),
                ("title", models.CharField(max_length=100)),
            ],
            options={
                "verbose_name_plural": "microarchitectures",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="RoundMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("adapter", models.CharField(max_length=20, unique=True)),
                ("last_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Attempt",
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
                        help_text="build-ID-NUMBER, session-ID-NUMBER or power-cycle-ID-NUMBER",
                        max_length=60,
                        unique=True,
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("adapter", models.CharField(max_length=20)),
                ("slots", models.PositiveIntegerField(help_text="How much of the dispatcher's capacity it takes.")),
                (
                    "agent",
                    models.CharField(
                        blank=True, help_text="Random id of the agent process that claimed it.", max_length=64
                    ),
                ),
                (
                    "deadline_at",
                    models.DateTimeField(
                        blank=True, help_text="It is stopped when it has not ended by then.", null=True
                    ),
                ),
                (
                    "losing",
                    models.BooleanField(
                        default=False,
                        help_text="It is being stopped because of trouble: its work is planned again when it is over.",
                    ),
                ),
                (
                    "arrived_at",
                    models.DateTimeField(
                        blank=True, help_text="When a machine that boots itself took the key in.", null=True
                    ),
                ),
                ("host", models.CharField(blank=True, default="", help_text="As its agent names it.", max_length=255)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "posts",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="How often a dispatcher was asked to begin it; empty: it starts agents itself.",
                        null=True,
                    ),
                ),
                (
                    "fault",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("host", "something is wrong with the host, or with its agent's configuration"),
                            ("service", "the service could not be reached from there"),
                            ("job", "the job's script is not ours"),
                            ("unknown", "its console could not be read"),
                        ],
                        default="",
                        help_text="Why it ended before an agent had claimed it; empty: it did not, or nobody can tell.",
                        max_length=20,
                    ),
                ),
                (
                    "stored_bytes",
                    models.BigIntegerField(default=0, help_text="What its builder has had stored on its account."),
                ),
                ("progress", models.CharField(blank=True, max_length=200)),
                (
                    "log",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="The end of what the agent logged, as its heartbeats brought it.",
                    ),
                ),
                (
                    "build",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="builds.build",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Conditions",
            fields=[
                (
                    "boot",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="conditions",
                        serialize=False,
                        to="lab.boot",
                    ),
                ),
                (
                    "facts",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Of what the probe saw, the part that is this boot's own (server/lab/hosts/probes.py).",
                    ),
                ),
                (
                    "document",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Settings, samples and counters around the cases (agent-protocol.md).",
                    ),
                ),
                ("console_tail", models.TextField(blank=True, help_text="The last that its console showed.")),
            ],
            options={
                "verbose_name_plural": "conditions",
            },
        ),
        migrations.RunSQL(cutting(CONDITIONS, "boot_id"), migrations.RunSQL.noop),
        migrations.CreateModel(
            name="BootStart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "attempt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="boots_begun", to="lab.attempt"
                    ),
                ),
                (
                    "boot",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="starts", to="lab.boot"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Builder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("enabled", models.BooleanField(default=True)),
                (
                    "node",
                    models.CharField(
                        blank=True, default="", help_text="Its controller's name for it, if other.", max_length=60
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("idle", "waiting for work"),
                            ("reserved", "work was given to it"),
                            ("working", "working"),
                            ("returning", "on its way back from a session"),
                            ("power-cycling", "being switched off and on"),
                            ("offline", "not reached"),
                        ],
                        default="idle",
                        max_length=20,
                    ),
                ),
                ("state_reason", models.TextField(blank=True, default="")),
                ("state_since", models.DateTimeField(default=server.core.clock.now)),
                (
                    "health",
                    models.CharField(
                        choices=[
                            ("good", "good"),
                            ("unknown", "to be checked first"),
                            ("quarantined", "quarantined"),
                            ("maintenance", "in somebody's hands"),
                            ("retired", "retired"),
                        ],
                        default="good",
                        max_length=12,
                    ),
                ),
                ("health_reason", models.TextField(blank=True)),
                ("health_since", models.DateTimeField(default=server.core.clock.now)),
                (
                    "capabilities",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="What it has besides its CPU, for work that asks for it: cxl, numa, 1g-pages ...",
                        size=None,
                    ),
                ),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "arches",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20),
                        blank=True,
                        default=list,
                        help_text="Architectures it compiles for, natively or across.",
                        size=None,
                    ),
                ),
                (
                    "toolchains",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Names of the toolchains it has; empty: all.",
                        size=None,
                    ),
                ),
                ("capacity", models.PositiveIntegerField(default=1, help_text="Builds at the same time.")),
                (
                    "jobs",
                    models.PositiveIntegerField(default=0, help_text="make -j of one build; 0: the site's setting."),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["idle", "reserved", "working", "returning", "power-cycling", "offline"])
                        ),
                        name="builder_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("health__in", ["good", "unknown", "quarantined", "maintenance", "retired"])
                        ),
                        name="builder_health_known",
                    ),
                    models.CheckConstraint(condition=models.Q(("capacity__gte", 1)), name="builder_capacity_enough"),
                ],
            },
        ),
        migrations.AddField(
            model_name="attempt",
            name="builder",
            field=models.ForeignKey(
                blank=True,
                help_text="Of a build.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="attempts",
                to="lab.builder",
            ),
        ),
        migrations.AddField(
            model_name="boot",
            name="facts",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="boots", to="lab.facts"
            ),
        ),
        migrations.CreateModel(
            name="MachineFacts",
            fields=[
                (
                    "machine",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="facts",
                        serialize=False,
                        to="lab.machine",
                    ),
                ),
                ("document", models.JSONField()),
            ],
            options={
                "verbose_name_plural": "machine facts",
            },
        ),
        migrations.AddField(
            model_name="attempt",
            name="machine",
            field=models.ForeignKey(
                blank=True,
                help_text="Of a session.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="attempts",
                to="lab.machine",
            ),
        ),
        migrations.AddField(
            model_name="machine",
            name="uarch",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="machines", to="lab.microarchitecture"
            ),
        ),
        migrations.CreateModel(
            name="PowerCycle",
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
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="power_cycles", to="lab.machine"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="attempt",
            name="power_cycle",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="attempts",
                to="lab.powercycle",
            ),
        ),
        migrations.CreateModel(
            name="Session",
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
                    "purpose",
                    models.CharField(
                        choices=[
                            ("series", "what a series costs"),
                            ("trial", "another trial than that of a whole series"),
                            ("health", "whether its machine is well: one kernel on both sides"),
                        ],
                        default="series",
                        max_length=10,
                    ),
                ),
                (
                    "looks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        blank=True,
                        default=list,
                        help_text="Boots a side at which it is judged (stats/comparison/decisions.py); empty: a health session.",
                        size=None,
                    ),
                ),
                (
                    "concluded_at",
                    models.DateTimeField(
                        blank=True, help_text="When it was decided that no more boots are wanted.", null=True
                    ),
                ),
                (
                    "cut_short",
                    models.BooleanField(
                        default=False, help_text="More boots might have told more; the budget was spent."
                    ),
                ),
                ("priority", models.IntegerField(default=0, help_text="On top of its tree's; the higher, the sooner.")),
                ("deadline_at", models.DateTimeField(blank=True, help_text="When its result is wanted.", null=True)),
                (
                    "needs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Capabilities that its machine must have.",
                        size=None,
                    ),
                ),
                (
                    "benchmarks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        default=list,
                        help_text="What is measured of all that the machine can, as BENCHMARK or BENCHMARK/CASE's beginning; empty, or none of it there: everything.",
                        size=None,
                    ),
                ),
                (
                    "base_build",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="sessions_as_base", to="builds.build"
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="sessions", to="lab.machine"
                    ),
                ),
                (
                    "patched_build",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sessions_as_patched",
                        to="builds.build",
                    ),
                ),
                (
                    "series",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="sessions",
                        to="sources.series",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="boot",
            name="session",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="boots", to="lab.session"
            ),
        ),
        migrations.AddField(
            model_name="attempt",
            name="session",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="attempts",
                to="lab.session",
            ),
        ),
        migrations.CreateModel(
            name="Trial",
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
                    models.CharField(help_text="The question: series:12, head:3:45 ...", max_length=120, unique=True),
                ),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("series", "what a series costs"),
                            ("retest", "the whole question once more, for a person"),
                            ("patch", "what one patch of a series adds"),
                            ("layout", "whether an effect is only how code is placed"),
                            ("head", "a tree's head against its reference kernel"),
                            ("confirm", "whether a suspected change is there"),
                            ("bisect", "which revision made a change"),
                            ("revert", "whether taking a revision back takes its change back"),
                            ("fix", "whether a change is mended"),
                            ("noise", "what a machine shows between equal kernels"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "layout",
                    models.BooleanField(
                        default=False, help_text="With the other code layout of each machine's configuration."
                    ),
                ),
                (
                    "benchmarks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        default=list,
                        help_text="What is measured, as in sessions.",
                        size=None,
                    ),
                ),
                (
                    "looks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Boots a side at which it is judged; the last is the most.",
                        size=None,
                    ),
                ),
                (
                    "budget_seconds",
                    models.FloatField(blank=True, help_text="Machine time of all its sessions; no limit.", null=True),
                ),
                (
                    "min_effect",
                    models.FloatField(
                        blank=True,
                        help_text="Changes below this fraction count as none; empty: what each cell's noise says.",
                        null=True,
                    ),
                ),
                (
                    "answered_at",
                    models.DateTimeField(
                        blank=True, help_text="When its result was taken up by whoever asked.", null=True
                    ),
                ),
                ("priority", models.IntegerField(default=0, help_text="On top of its tree's; the higher, the sooner.")),
                (
                    "tried_at",
                    models.DateTimeField(blank=True, help_text="When the sweep last tried to plan it.", null=True),
                ),
                (
                    "base",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trials_as_base",
                        to="sources.revision",
                    ),
                ),
                (
                    "machines",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Where; empty: all that the tree is interested in.",
                        related_name="trials",
                        to="lab.machine",
                    ),
                ),
                (
                    "patched",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trials_as_patched",
                        to="sources.revision",
                    ),
                ),
                (
                    "series",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="trials",
                        to="sources.series",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="session",
            name="trial",
            field=models.ForeignKey(
                blank=True,
                help_text="Empty: a health session.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="sessions",
                to="lab.trial",
            ),
        ),
        migrations.CreateModel(
            name="CoreType",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("cpus", models.TextField(help_text="CPU list as the kernel writes it: 0-3,8")),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="core_types", to="lab.machine"
                    ),
                ),
            ],
            options={
                "ordering": ["machine", "name"],
                "constraints": [models.UniqueConstraint(fields=("machine", "name"), name="core_type_once")],
            },
        ),
        migrations.AddConstraint(
            model_name="machine",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["idle", "reserved", "working", "returning", "power-cycling", "offline"])
                ),
                name="machine_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="machine",
            constraint=models.CheckConstraint(
                condition=models.Q(("health__in", ["good", "unknown", "quarantined", "maintenance", "retired"])),
                name="machine_health_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="machine",
            constraint=models.CheckConstraint(
                condition=models.Q(("clock__in", ["wall", "instructions"])), name="machine_clock_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="machine",
            constraint=models.CheckConstraint(
                condition=models.Q(("boots_per_side__gte", 2)), name="machine_boots_enough"
            ),
        ),
        migrations.AddConstraint(
            model_name="powercycle",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["wanted", "dispatched", "running", "done", "failed", "canceled"])),
                name="power_cycle_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="powercycle",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["wanted", "dispatched", "running"])),
                fields=("machine",),
                name="power_cycle_once_at_a_time",
            ),
        ),
        migrations.AddIndex(
            model_name="boot",
            index=models.Index(condition=models.Q(("state", "running")), fields=["state"], name="boot_running"),
        ),
        migrations.AddConstraint(
            model_name="boot",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["planned", "running", "measured", "failed"])), name="boot_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="boot",
            constraint=models.CheckConstraint(
                condition=models.Q(("arm__in", ["base", "patched"])), name="boot_arm_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="boot",
            constraint=models.UniqueConstraint(fields=("session", "position"), name="boot_position_once"),
        ),
        migrations.AddConstraint(
            model_name="boot",
            constraint=models.UniqueConstraint(
                condition=models.Q(("boot_id", ""), _negated=True), fields=("boot_id",), name="boot_id_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="boot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "measured"), _negated=True),
                    models.Q(models.Q(("boot_id", ""), _negated=True), models.Q(("build_id", ""), _negated=True)),
                    _connector="OR",
                ),
                name="measured_boot_is_proved",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(fields=["state_since"], name="attempt_since"),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                models.F("machine"),
                models.OrderBy(models.F("id"), descending=True, nulls_last=True),
                condition=models.Q(("machine__isnull", False)),
                name="attempt_of_machine",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                models.F("builder"),
                models.OrderBy(models.F("id"), descending=True, nulls_last=True),
                condition=models.Q(("builder__isnull", False)),
                name="attempt_of_builder",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(fields=["adapter", "-id"], name="attempt_of_adapter"),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(fields=["created_at"], name="attempt_made_since"),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["submitting", "queued", "running", "canceling", "done", "lost", "canceled"])
                ),
                name="attempt_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("build__isnull", False), ("power_cycle__isnull", True), ("session__isnull", True)),
                    models.Q(("build__isnull", True), ("power_cycle__isnull", True), ("session__isnull", False)),
                    models.Q(("build__isnull", True), ("power_cycle__isnull", False), ("session__isnull", True)),
                    _connector="OR",
                ),
                name="attempt_of_one_thing",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["submitting", "queued", "running", "canceling"])),
                fields=("build",),
                name="build_one_active_attempt",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["submitting", "queued", "running", "canceling"])),
                fields=("session",),
                name="session_one_active_attempt",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["submitting", "queued", "running", "canceling"])),
                fields=("power_cycle",),
                name="power_cycle_one_active_attempt",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["submitting", "queued", "running", "canceling"])),
                fields=("machine",),
                name="machine_one_active_attempt",
            ),
        ),
        migrations.AddIndex(
            model_name="trial",
            index=models.Index(
                condition=models.Q(("state__in", ["wanted", "measuring"])), fields=["state"], name="trial_open"
            ),
        ),
        migrations.AddIndex(
            model_name="trial",
            index=models.Index(
                condition=models.Q(("answered_at", None), ("state__in", ["done", "failed", "canceled"])),
                fields=["id"],
                name="trial_unanswered",
            ),
        ),
        migrations.AddIndex(
            model_name="trial",
            index=models.Index(fields=["purpose", "-id"], name="trial_of_purpose"),
        ),
        migrations.AddIndex(
            model_name="trial",
            index=models.Index(condition=models.Q(("purpose", "noise")), fields=["created_at"], name="trial_of_night"),
        ),
        migrations.AddConstraint(
            model_name="trial",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["wanted", "measuring", "done", "failed", "canceled"])),
                name="trial_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="trial",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "purpose__in",
                        ["series", "retest", "patch", "layout", "head", "confirm", "bisect", "revert", "fix", "noise"],
                    )
                ),
                name="trial_purpose_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="trial",
            constraint=models.CheckConstraint(condition=models.Q(("looks__len__gt", 0)), name="trial_has_looks"),
        ),
        migrations.AddConstraint(
            model_name="trial",
            constraint=models.UniqueConstraint(
                condition=models.Q(("purpose", "series")), fields=("series",), name="trial_of_series_once"
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(condition=models.Q(("state", "planned")), fields=["machine"], name="session_waiting"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("state__in", ["planned", "dispatched", "running"])),
                fields=["state"],
                name="session_open",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["machine", "-id"], name="session_of_machine"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["machine", "created_at"], name="session_of_machine_since"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["purpose", "-id"], name="session_of_purpose"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["created_at"], name="session_since"),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["planned", "dispatched", "running", "done", "failed", "canceled"])),
                name="session_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("purpose", "series"), ("series__isnull", False), ("trial__isnull", False)),
                    models.Q(("purpose", "trial"), ("series__isnull", True), ("trial__isnull", False)),
                    models.Q(("purpose", "health"), ("series__isnull", True), ("trial__isnull", True)),
                    _connector="OR",
                ),
                name="session_purpose_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(fields=("trial", "machine"), name="session_of_trial_once"),
        ),
        migrations.CreateModel(
            name='Asker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(help_text='Of its token: machine, builder or control.', max_length=10)),
                ('subject', models.CharField(max_length=100)),
                ('asked_at', models.DateTimeField(default=server.core.clock.now)),
                ('host', models.CharField(blank=True, default='', help_text='As its agent names it.', max_length=255)),
                ('agent_version', models.CharField(blank=True, default='', max_length=60)),
                ('keys', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=60), blank=True, default=list, help_text='Attempts that it had under way.', size=None)),
                ('boot_id', models.CharField(blank=True, default='', help_text='Of the system that asked last.', max_length=36)),
                ('boot_since', models.DateTimeField(default=server.core.clock.now, help_text='When that system asked first.')),
                ('boots_before', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=36), blank=True, default=list, help_text='Of systems that asked before it, the latest first.', size=None)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('scope', 'subject'), name='asker_once')],
            },
        ),
        migrations.CreateModel(
            name='Enrolment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(help_text='SHA-256 of the code.', max_length=64, unique=True)),
                ('scope', models.CharField(max_length=10)),
                ('subject', models.CharField(help_text='The machine, builder or control host that it is for.', max_length=100)),
                ('made_by', models.CharField(max_length=150)),
                ('created_at', models.DateTimeField(default=server.core.clock.now)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('used_from', models.CharField(blank=True, default='', help_text='The network it was shown from.', max_length=60)),
                ('host', models.CharField(blank=True, default='', help_text='As its agent names it.', max_length=255)),
                ('facts', models.JSONField(blank=True, default=dict, help_text="What the agent's probe saw there.")),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Canary',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('only', models.BooleanField(default=True, editable=False, unique=True)),
                ('enabled', models.BooleanField(default=True)),
                ('file', models.CharField(help_text='The file that gets a line of comment.', max_length=200, validators=[django.core.validators.RegexValidator('\\A(?!/)(?!.*(?:^|/)\\.\\.?(?:/|\\Z))[\\w./+-]{1,200}\\.[ch]\\Z', 'a file of C in the tree: init/main.c')])),
                ('to', models.EmailField(help_text="The operator's own sink: its author, who is told the result.", max_length=254)),
                ('operators', models.EmailField(blank=True, help_text='Who is told when it is overdue; empty: nobody by mail.', max_length=254)),
                ('cases', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), blank=True, default=list, help_text='What is measured, as BENCHMARK or BENCHMARK/CASE; empty: all that the machine can.', size=None)),
                ('every_hours', models.PositiveIntegerField(default=24, validators=[django.core.validators.MinValueValidator(1)])),
                ('post_minutes', models.PositiveIntegerField(default=60, help_text='From when one is due until it is posted.', validators=[django.core.validators.MinValueValidator(1)])),
                ('mails_minutes', models.PositiveIntegerField(default=15, help_text='Until its mails are a series whose sender is checked.', validators=[django.core.validators.MinValueValidator(1)])),
                ('apply_minutes', models.PositiveIntegerField(default=30, help_text='Until it is applied.', validators=[django.core.validators.MinValueValidator(1)])),
                ('builds_minutes', models.PositiveIntegerField(default=360, help_text='Until both kernels are built.', validators=[django.core.validators.MinValueValidator(1)])),
                ('sessions_minutes', models.PositiveIntegerField(default=720, help_text='Until it is measured.', validators=[django.core.validators.MinValueValidator(1)])),
                ('verdict_minutes', models.PositiveIntegerField(default=60, help_text='Until it is judged.', validators=[django.core.validators.MinValueValidator(1)])),
                ('report_minutes', models.PositiveIntegerField(default=120, help_text='Until its report has left.', validators=[django.core.validators.MinValueValidator(1)])),
                ('message_id', models.CharField(blank=True, editable=False, max_length=200)),
                ('posted_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('stage', models.CharField(default='post', editable=False, max_length=10)),
                ('stage_since', models.DateTimeField(default=server.core.clock.now, editable=False)),
                ('detail', models.TextField(blank=True, editable=False, help_text='What is waited for, or what is wrong.')),
                ('failing_since', models.DateTimeField(blank=True, editable=False, help_text='When one was first found overdue and none has come through.', null=True)),
                ('passed_at', models.DateTimeField(blank=True, editable=False, help_text='When the last one came through.', null=True)),
                ('machine', models.ForeignKey(help_text='Where it is measured.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='lab.machine')),
                ('series', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sources.series')),
                ('tree', models.ForeignKey(help_text='What it is posted against.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sources.tree')),
            ],
            options={
                'verbose_name_plural': 'canaries',
                'constraints': [models.CheckConstraint(condition=models.Q(('only', True)), name='canary_is_one')],
            },
        ),
    ]
