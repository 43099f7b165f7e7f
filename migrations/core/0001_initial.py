import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import server.core.clock
import server.core.reasons
from server.core.rows.partitions import cutting_transitions


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Tries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(help_text="What is tried, by whom.", max_length=90, unique=True)),
                ("count", models.PositiveIntegerField()),
                ("since", models.DateTimeField(db_index=True)),
            ],
            options={
                "verbose_name_plural": "tries",
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        db_index=True, help_text="The same for a token and those it is renewed by.", max_length=100
                    ),
                ),
                ("prefix", models.CharField(max_length=12, unique=True)),
                ("digest", models.CharField(max_length=64)),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("machine", "claims and uploads for the machine named in `subject`"),
                            ("builder", "claims and uploads builds for the builder named in `subject`"),
                            ("control", "claims power cycles for the control host named in `subject`"),
                        ],
                        max_length=10,
                    ),
                ),
                ("subject", models.CharField(help_text="Machine or builder that holds it.", max_length=100)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=server.core.clock.now)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["machine", "builder", "control"])), name="token_scope_known"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PersonToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("prefix", models.CharField(max_length=12, unique=True)),
                ("digest", models.CharField(max_length=64)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=server.core.clock.now)),
                ("name", models.CharField(help_text="Shown to everybody beside what is done with it.", max_length=60)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("submit", "hand in a series to be measured"),
                                ("approve", "let a held series run"),
                                ("retest", "have a series measured again"),
                                ("triage", "withdraw, reopen and accept findings"),
                                ("moderate", "release and reject reports"),
                                ("maintenance", "take machines out of service and put them back"),
                                ("builds", "ask for a failed build again"),
                                ("subscribe", "read and change what its owner is told of"),
                                ("enrol", "make codes by which machines come into the lab"),
                            ],
                            max_length=20,
                        ),
                        size=9,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tokens", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("revoked_at", None)),
                        fields=("user", "name"),
                        name="person_token_named_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("scopes__len__gt", 0)), name="person_token_opens_something"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "scopes__contained_by",
                                [
                                    "submit",
                                    "approve",
                                    "retest",
                                    "triage",
                                    "moderate",
                                    "maintenance",
                                    "builds",
                                    "subscribe",
                                    "enrol",
                                ],
                            )
                        ),
                        name="person_token_scopes_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Begun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(help_text="The task and its arguments.", max_length=200)),
                ("at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "given_up",
                    models.BooleanField(default=False, help_text="It is one of those for which the task was given up."),
                ),
            ],
            options={
                "verbose_name_plural": "begun",
                "indexes": [models.Index(fields=["key", "at"], name="begun_of_task")],
            },
        ),
        migrations.CreateModel(
            name="Transition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("trace", models.CharField(db_index=True, max_length=16)),
                ("subject", models.CharField(help_text="Kind of row: series, build, session, boot ...", max_length=30)),
                ("subject_id", models.BigIntegerField()),
                ("before", models.CharField(blank=True, max_length=20)),
                ("after", models.CharField(max_length=20)),
                ("reason", models.TextField(blank=True)),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                (
                    "actor",
                    models.CharField(
                        blank=True, default="", help_text="Who did it; empty: the service itself.", max_length=230
                    ),
                ),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(fields=["subject", "subject_id", "id"], name="transition_subject")],
            },
        ),
        migrations.RunSQL(cutting_transitions(), migrations.RunSQL.noop),
    ]
