import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("lab", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="JenkinsController",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("url", models.CharField(max_length=300, unique=True)),
                (
                    "session",
                    models.CharField(
                        blank=True, help_text="X-Jenkins-Session: new at each of its starts.", max_length=64
                    ),
                ),
                ("version", models.CharField(blank=True, max_length=60)),
                ("answered_at", models.DateTimeField(blank=True, null=True)),
                ("unreachable_since", models.DateTimeField(blank=True, null=True)),
                (
                    "refused_since",
                    models.DateTimeField(
                        blank=True,
                        help_text="When it first refused us and since then said nothing else; no alarm yet.",
                        null=True,
                    ),
                ),
                ("trouble", models.TextField(blank=True, help_text="What it answered, or why it did not.")),
                (
                    "alarm",
                    models.TextField(blank=True, help_text="What only a person can mend: a token that is refused."),
                ),
                ("alarm_since", models.DateTimeField(blank=True, null=True)),
                ("clock_skew_seconds", models.FloatField(blank=True, help_text="Its clock minus ours.", null=True)),
                ("next_request_at", models.DateTimeField(blank=True, help_text="The rate limit's mark.", null=True)),
                ("round_at", models.DateTimeField(blank=True, null=True)),
                ("round_seconds", models.FloatField(blank=True, null=True)),
                ("round_requests", models.PositiveIntegerField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="JenkinsJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("problem", models.TextField(blank=True, help_text="Why nothing is triggered there.")),
                ("checked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "edited_at",
                    models.DateTimeField(
                        blank=True, help_text="When a build of it last came with another script than ours.", null=True
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="JenkinsNode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60, unique=True)),
                ("online", models.BooleanField(default=False)),
                (
                    "connected",
                    models.BooleanField(default=False, help_text="Whether its agent is there, marked offline or not."),
                ),
                ("temporarily_offline", models.BooleanField(default=False)),
                ("offline_reason", models.TextField(blank=True)),
                (
                    "held_for",
                    models.CharField(blank=True, help_text="Key for which we marked it offline.", max_length=60),
                ),
                ("busy_with", models.CharField(blank=True, help_text="What its executors do.", max_length=200)),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="JenkinsRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("job", models.CharField(max_length=100)),
                ("node", models.CharField(blank=True, help_text="Where it was built on, or has to be.", max_length=60)),
                ("posted_at", models.DateTimeField(blank=True, null=True)),
                ("queue_id", models.BigIntegerField(blank=True, null=True)),
                (
                    "controller_session",
                    models.CharField(blank=True, help_text="X-Jenkins-Session of that answer.", max_length=64),
                ),
                ("number", models.PositiveIntegerField(blank=True, help_text="Of the build in its job.", null=True)),
                (
                    "boot_id",
                    models.CharField(blank=True, help_text="Of the node's system when the build began.", max_length=36),
                ),
                ("why", models.TextField(blank=True, help_text="Why it waits, in Jenkins' words.")),
                ("stuck", models.BooleanField(default=False)),
                ("result", models.CharField(blank=True, help_text="SUCCESS, FAILURE, ABORTED ...", max_length=20)),
                (
                    "seen_at",
                    models.DateTimeField(blank=True, help_text="When it was last seen in queue or builds.", null=True),
                ),
                ("absent_since", models.DateTimeField(blank=True, null=True)),
                ("absent_looks", models.PositiveIntegerField(default=0)),
                ("cancel_asked_at", models.DateTimeField(blank=True, null=True)),
                ("stop_asked_at", models.DateTimeField(blank=True, null=True)),
                ("disconnect_asked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "console",
                    models.TextField(
                        blank=True, default="", help_text="How the console of a build ends that no agent has claimed."
                    ),
                ),
                (
                    "attempt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="jenkins_run", to="lab.attempt"
                    ),
                ),
            ],
            options={
                "ordering": ["attempt"],
            },
        ),
    ]
