import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
from django.db import migrations, models

import server.core.addresses
import server.core.clock
import server.core.reasons
import server.core.states
from server.sources.measure_rules import RULES


def add_rules(apps, schema_editor):
    """The rules a new site begins with; `manage.py load_rules` brings back those that were deleted."""
    model = apps.get_model("sources", "MeasureRule")
    model.objects.bulk_create(
        [model(pattern=r.pattern, benchmarks=list(r.benchmarks), note=r.note) for r in RULES], ignore_conflicts=True
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="MailingList",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("enabled", models.BooleanField(default=True)),
                ("polled_at", models.DateTimeField(blank=True, null=True)),
                ("fetched_at", models.DateTimeField(blank=True, null=True)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_error", models.TextField(blank=True)),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("url", models.CharField(blank=True, max_length=500, validators=[server.core.addresses.check_address])),
                ("address", models.EmailField(blank=True, help_text="Where a reply to the list goes.", max_length=254)),
                (
                    "since",
                    models.DateTimeField(
                        blank=True, help_text="Mails that the archive took before are not read.", null=True
                    ),
                ),
                (
                    "proof",
                    models.CharField(
                        choices=[
                            ("dkim", "a valid signature (DKIM) of the sender's domain"),
                            ("archive", "the archive is the site's own and proves its senders"),
                        ],
                        default="dkim",
                        help_text="What proves a sender.",
                        max_length=10,
                    ),
                ),
                (
                    "moderated",
                    models.BooleanField(default=True, help_text="A person releases each report before it is sent."),
                ),
                ("poll_seconds", models.PositiveIntegerField(default=60)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="MeasureRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "pattern",
                    models.CharField(
                        help_text="As in .gitignore: mm/*.c, arch/*/lib/memcpy*, **.", max_length=300, unique=True
                    ),
                ),
                (
                    "benchmarks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        default=list,
                        help_text="Names of benchmarks, or benchmark/case beginnings: will-it-scale/page_fault.",
                        size=None,
                    ),
                ),
                ("note", models.TextField(blank=True)),
                ("enabled", models.BooleanField(default=True)),
            ],
            options={
                "ordering": ["pattern"],
            },
        ),
        migrations.CreateModel(
            name="TrustedSender",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.EmailField(max_length=320, unique=True)),
                ("note", models.TextField(blank=True, help_text="Who it is and who decided.")),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=server.core.clock.now)),
            ],
            options={
                "ordering": ["address"],
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message_id", models.CharField(db_index=True, max_length=500)),
                ("blob", models.CharField(help_text="Object id in the archive's epoch.", max_length=40)),
                ("raw", models.BinaryField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("cover", "cover letter"),
                            ("patch", "patch"),
                            ("other", "discussion"),
                            ("unusable", "could not be read"),
                            ("deleted", "deleted from the archive"),
                        ],
                        max_length=10,
                    ),
                ),
                ("kind_before", models.CharField(blank=True, help_text="What a deleted mail was.", max_length=10)),
                ("reason", models.TextField(blank=True, help_text="Why it could not be used.")),
                (
                    "reason_code",
                    models.CharField(blank=True, choices=server.core.reasons.known_codes, default="", max_length=40),
                ),
                ("subject", models.TextField(blank=True)),
                ("sender_name", models.TextField(blank=True)),
                ("sender_address", models.CharField(blank=True, max_length=320)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "received_at",
                    models.DateTimeField(
                        default=server.core.clock.now,
                        help_text="When the archive took it; for a mail without one, when it was stored.",
                    ),
                ),
                (
                    "authentic",
                    models.BooleanField(
                        blank=True, help_text="Whether its sender was proved; empty: not checked.", null=True
                    ),
                ),
                ("authenticity", models.TextField(blank=True, help_text="What proved the sender, or why nothing did.")),
                (
                    "unsigned",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("subject", "subject"),
                                ("date", "date"),
                                ("to", "To"),
                                ("cc", "Cc"),
                                ("blanks", "runs of blanks"),
                            ],
                            max_length=10,
                        ),
                        blank=True,
                        default=list,
                        help_text="What the proof of the sender leaves open: others may have written it.",
                        size=None,
                    ),
                ),
                ("in_reply_to", models.CharField(blank=True, db_index=True, max_length=500)),
                (
                    "references",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=500), blank=True, default=list, size=None
                    ),
                ),
                (
                    "trailers",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=1000),
                        blank=True,
                        default=list,
                        help_text="Reviewed-by and others: of the commit message of a patch, of unquoted text else.",
                        size=None,
                    ),
                ),
                (
                    "recipients",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320),
                        blank=True,
                        default=list,
                        help_text="Addresses of To and Cc.",
                        size=None,
                    ),
                ),
                (
                    "base_commit",
                    models.CharField(blank=True, help_text="What the author says it applies to.", max_length=40),
                ),
                ("change_id", models.CharField(blank=True, max_length=200)),
                (
                    "prerequisites",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=300),
                        blank=True,
                        default=list,
                        help_text="What the author says it needs: patch-id:..., change-id:..., message-id:....",
                        size=None,
                    ),
                ),
                ("author_name", models.TextField(blank=True, help_text="From the body where it names one.")),
                ("author_address", models.CharField(blank=True, max_length=320)),
                ("files", models.PositiveIntegerField(default=0)),
                ("insertions", models.PositiveIntegerField(default=0)),
                ("deletions", models.PositiveIntegerField(default=0)),
                (
                    "paths",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=1024),
                        blank=True,
                        default=list,
                        help_text="All files that it changes, old and new names; none where they are too many or too long.",
                        size=None,
                    ),
                ),
                (
                    "mailing_list",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="messages", to="sources.mailinglist"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Revision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sha", models.CharField(max_length=40, unique=True)),
                ("tree_sha", models.CharField(db_index=True, help_text="Same content, same kernel.", max_length=40)),
                ("subject", models.TextField()),
                ("author", models.CharField(max_length=300)),
                ("committed_at", models.DateTimeField()),
                (
                    "foreign",
                    models.BooleanField(
                        default=True,
                        help_text="Holds code of mails that no watched tree published, whatever its tree and its refs are called.",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="sources.revision",
                    ),
                ),
            ],
            options={
                "ordering": ["-committed_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Series",
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
                    "root_message_id",
                    models.CharField(help_text="The cover letter, or patch 1 where there is none.", max_length=500),
                ),
                ("subject", models.TextField(help_text="Without the [PATCH ...] mark.")),
                ("author_name", models.TextField(blank=True)),
                ("author_address", models.CharField(max_length=320)),
                ("version", models.PositiveIntegerField(default=1)),
                ("minor", models.PositiveIntegerField(default=0, help_text="Of a version such as v11.1.")),
                ("total", models.PositiveIntegerField(help_text="Patches that the marks announce.")),
                ("submitted_at", models.DateTimeField()),
                (
                    "base_commit",
                    models.CharField(blank=True, help_text="What the author says it applies to.", max_length=40),
                ),
                ("change_id", models.CharField(blank=True, db_index=True, max_length=200)),
                (
                    "received_at",
                    models.DateTimeField(default=server.core.clock.now, help_text="When its first mail arrived."),
                ),
                ("rfc", models.BooleanField(default=False)),
                ("resend", models.BooleanField(default=False)),
                (
                    "canary",
                    models.BooleanField(
                        default=False, help_text="The service posted it to itself, to see that the whole way is open."
                    ),
                ),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        default=list,
                        help_text="Other words of the [PATCH ...] mark.",
                        size=None,
                    ),
                ),
                (
                    "prerequisites",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=300),
                        blank=True,
                        default=list,
                        help_text="What the author says it needs: patch-id:..., change-id:..., message-id:....",
                        size=None,
                    ),
                ),
                (
                    "trailers",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=1000),
                        blank=True,
                        default=list,
                        help_text="Of its patches, and of replies to them and to the cover letter, each once.",
                        size=None,
                    ),
                ),
                (
                    "checked_at",
                    models.DateTimeField(blank=True, help_text="When its senders were last checked.", null=True),
                ),
                (
                    "approved_at",
                    models.DateTimeField(blank=True, help_text="When a person last let it run.", null=True),
                ),
                ("base_how", models.TextField(blank=True, help_text="What told the base.")),
                (
                    "base_certain",
                    models.BooleanField(
                        blank=True,
                        help_text="No: nothing in the mails names the base, it only applies there.",
                        null=True,
                    ),
                ),
                (
                    "benchmarks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        default=list,
                        help_text="What its changed paths ask to be measured, with the default set.",
                        size=None,
                    ),
                ),
                (
                    "tried_at",
                    models.DateTimeField(blank=True, help_text="When it was last tried to apply it.", null=True),
                ),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="How often git failed while it was applied."),
                ),
                (
                    "base",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="series_on_it",
                        to="sources.revision",
                    ),
                ),
                (
                    "cover",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.message",
                    ),
                ),
                (
                    "head",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="series_ending",
                        to="sources.revision",
                    ),
                ),
                (
                    "mailing_list",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="series", to="sources.mailinglist"
                    ),
                ),
                (
                    "superseded_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="supersedes",
                        to="sources.series",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "series",
                "ordering": ["-submitted_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="Patch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveIntegerField()),
                ("subject", models.TextField()),
                (
                    "trailers",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=1000),
                        blank=True,
                        default=list,
                        help_text="Its own, and those of replies to it or to the cover letter.",
                        size=None,
                    ),
                ),
                (
                    "patch_id",
                    models.CharField(
                        blank=True,
                        db_index=True,
                        help_text="git patch-id --stable; empty where nobody needed it, `none` where git finds none.",
                        max_length=40,
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="patches", to="sources.message"
                    ),
                ),
                (
                    "revision",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="patches",
                        to="sources.revision",
                    ),
                ),
                (
                    "series",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="patches", to="sources.series"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "patches",
                "ordering": ["series", "index"],
            },
        ),
        migrations.CreateModel(
            name="Thread",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stale", models.BooleanField(default=False)),
                ("rests_until", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(condition=models.Q(("stale", True)), fields=["id"], name="thread_stale")],
            },
        ),
        migrations.AddField(
            model_name="message",
            name="thread",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="messages",
                to="sources.thread",
            ),
        ),
        migrations.CreateModel(
            name="ChangedPath",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("beginning", models.CharField(max_length=255)),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="changed_paths", to="sources.message"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [models.Index(fields=["beginning"], name="changed_path", opclasses=["varchar_pattern_ops"])],
            },
        ),
        migrations.CreateModel(
            name="ThreadMember",
            fields=[
                ("name", models.CharField(max_length=500, primary_key=True, serialize=False)),
                (
                    "thread",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="members", to="sources.thread"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Tree",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("enabled", models.BooleanField(default=True)),
                ("polled_at", models.DateTimeField(blank=True, null=True)),
                ("fetched_at", models.DateTimeField(blank=True, null=True)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_error", models.TextField(blank=True)),
                ("name", models.SlugField(max_length=60, unique=True)),
                ("url", models.CharField(max_length=500, validators=[server.core.addresses.check_address])),
                ("poll_seconds", models.PositiveIntegerField(default=300)),
                (
                    "branch_patterns",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        default=list,
                        help_text="Branches to watch: names, or globs such as linux-6.*.y.",
                        size=None,
                    ),
                ),
                (
                    "tag_patterns",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        default=list,
                        help_text="Tags whose commits are measured, as globs such as v*.",
                        size=None,
                    ),
                ),
                ("rebasing", models.BooleanField(default=False, help_text="Its branches are expected to be forced.")),
                ("priority", models.SmallIntegerField(default=0, help_text="Larger is measured earlier.")),
                (
                    "uarchs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Microarchitectures of interest; all when empty.",
                        size=None,
                    ),
                ),
                (
                    "benchmarks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        default=list,
                        help_text="Benchmarks of interest, beside the default set.",
                        size=None,
                    ),
                ),
                (
                    "heads_per_day",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="New heads measured in 24 hours at most; all when empty, none when 0.",
                        null=True,
                    ),
                ),
                (
                    "reference",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Tag or commit that every head is measured against; empty: the first head that was measured.",
                        max_length=200,
                    ),
                ),
                (
                    "pinned_as",
                    models.CharField(
                        blank=True, default="", help_text="What `reference` was when it was pinned.", max_length=200
                    ),
                ),
                ("pin_problem", models.TextField(blank=True, default="", help_text="Why `reference` is not pinned.")),
                (
                    "moderated",
                    models.BooleanField(
                        default=True,
                        help_text=("A person releases each report on a regression of its branches before it is sent."),
                    ),
                ),
                (
                    "merges_by",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320),
                        blank=True,
                        default=list,
                        help_text="Addresses: every merge that one of these people committed is measured.",
                        size=None,
                    ),
                ),
                (
                    "subject_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=60),
                        blank=True,
                        default=list,
                        help_text="Words in [PATCH ...] that mean this tree: mm-unstable.",
                        size=None,
                    ),
                ),
                (
                    "addresses",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320),
                        blank=True,
                        default=list,
                        help_text="Addresses in To or Cc that mean this tree.",
                        size=None,
                    ),
                ),
                (
                    "paths",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=200),
                        blank=True,
                        default=list,
                        help_text="Beginnings of the paths that this tree takes patches for: mm/.",
                        size=None,
                    ),
                ),
                (
                    "pinned",
                    models.ForeignKey(
                        blank=True,
                        help_text="The reference kernel's revision, found from `reference`.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.revision",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Tag",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("seen_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="tags", to="sources.revision"
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tags", to="sources.tree"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddField(
            model_name="revision",
            name="tree",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="revisions", to="sources.tree"
            ),
        ),
        migrations.AddField(
            model_name="mailinglist",
            name="tree",
            field=models.ForeignKey(
                blank=True,
                help_text="Default base tree.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="lists",
                to="sources.tree",
            ),
        ),
        migrations.CreateModel(
            name="Branch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("head_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "head",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.revision",
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="branches", to="sources.tree"
                    ),
                ),
            ],
            options={
                "ordering": ["tree__name", "name"],
            },
        ),
        migrations.CreateModel(
            name="WantedRevision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "why",
                    models.CharField(
                        choices=[("head", "new head"), ("merge", "merge by a named person"), ("tag", "tag")],
                        max_length=10,
                    ),
                ),
                ("detail", models.TextField(blank=True, help_text="Which branch, person or tag.")),
                (
                    "branch",
                    models.CharField(
                        blank=True, help_text="Its name: head of which, or merged to which.", max_length=255
                    ),
                ),
                (
                    "taken_at",
                    models.DateTimeField(
                        blank=True, help_text="When its measuring was asked for, or given up.", null=True
                    ),
                ),
                ("outcome", models.TextField(blank=True, default="", help_text="Why it is not measured.")),
                ("created_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="wanted", to="sources.revision"
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="wanted", to="sources.tree"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Epoch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("last_commit", models.CharField(blank=True, max_length=40)),
                (
                    "rewritten_at",
                    models.DateTimeField(blank=True, help_text="When its history was last found rewritten.", null=True),
                ),
                (
                    "mailing_list",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="epochs", to="sources.mailinglist"
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
                "constraints": [models.UniqueConstraint(fields=("mailing_list", "number"), name="epoch_once")],
            },
        ),
        migrations.CreateModel(
            name="HeadMove",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("created", "first seen"),
                            ("advanced", "moved forward"),
                            ("forced", "history rewritten"),
                            ("deleted", "deleted"),
                            ("restored", "back again"),
                        ],
                        max_length=10,
                    ),
                ),
                ("decision", models.TextField(blank=True, help_text="What is measured of it, or why nothing is.")),
                ("at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="moves", to="sources.branch"
                    ),
                ),
                (
                    "after",
                    models.ForeignKey(
                        blank=True,
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
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.revision",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["branch", "-id"], name="head_move_branch"),
                    models.Index(
                        condition=models.Q(("kind__in", ["forced", "deleted"])),
                        fields=["at"],
                        name="head_move_lost_history",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["created", "advanced", "forced", "deleted", "restored"])),
                        name="head_move_kind_known",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(django.db.models.functions.text.Upper("author_address"), name="series_author"),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(fields=["root_message_id"], name="series_root"),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(
                condition=models.Q(("state__in", ["incomplete", "held", "ready"])),
                fields=["state"],
                name="series_waiting",
            ),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(fields=["-state_since", "-id"], name="series_moved"),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(fields=["-submitted_at", "-id"], name="series_posted"),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(fields=["received_at"], name="series_since"),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(
                condition=models.Q(("checked_at", None), ("reason_code", "in-turn"), ("state", "held")),
                fields=["-id"],
                name="series_in_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="series",
            index=models.Index(condition=models.Q(("base_certain", False)), fields=["-id"], name="series_uncertain"),
        ),
        migrations.AddConstraint(
            model_name="series",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["incomplete", "held", "ready", "applied", "refused", "superseded"])),
                name="series_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="series",
            constraint=models.UniqueConstraint(
                fields=("mailing_list", "root_message_id", "version", "minor"), name="series_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="series",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "applied"), _negated=True),
                    models.Q(("base__isnull", False), ("head__isnull", False)),
                    _connector="OR",
                ),
                name="applied_series_has_revisions",
            ),
        ),
        migrations.AddConstraint(
            model_name="patch",
            constraint=models.UniqueConstraint(fields=("series", "index"), name="patch_once"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["sent_at"], name="message_sent_at"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["mailing_list", "blob"], name="message_blob"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["mailing_list", "-id"], name="message_of_list"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                django.db.models.functions.text.Upper("sender_address"),
                models.OrderBy(models.F("id"), descending=True),
                name="message_of_sender",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("reason_code", ""), _negated=True), fields=["-id"], name="message_with_reason"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["kind", "-id"], name="message_of_kind"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["mailing_list", "kind", "-id"], name="message_of_list_and_kind"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["received_at"], name="message_received_at"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.UniqueConstraint(fields=("mailing_list", "message_id", "blob"), name="message_once"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["cover", "patch", "other", "unusable", "deleted"])),
                name="message_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tree",
            constraint=models.CheckConstraint(
                condition=models.Q(("url__regex", "^[^/]*://([^/]*@|[^?#]*[?#])"), _negated=True),
                name="tree_url_opens_nothing",
            ),
        ),
        migrations.AddConstraint(
            model_name="tag",
            constraint=models.UniqueConstraint(fields=("tree", "name", "revision"), name="tag_once"),
        ),
        migrations.AddConstraint(
            model_name="mailinglist",
            constraint=models.CheckConstraint(
                condition=models.Q(("proof__in", ["dkim", "archive"])), name="mailing_list_proof_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="mailinglist",
            constraint=models.CheckConstraint(
                condition=models.Q(("url__regex", "^[^/]*://([^/]*@|[^?#]*[?#])"), _negated=True),
                name="mailing_list_url_opens_nothing",
            ),
        ),
        migrations.AddConstraint(
            model_name="branch",
            constraint=models.UniqueConstraint(fields=("tree", "name"), name="branch_once"),
        ),
        migrations.AddIndex(
            model_name="wantedrevision",
            index=models.Index(fields=["tree", "-created_at"], name="wanted_revision_recent"),
        ),
        migrations.AddIndex(
            model_name="wantedrevision",
            index=models.Index(
                condition=models.Q(("taken_at", None)), fields=["tree", "id"], name="wanted_revision_waiting"
            ),
        ),
        migrations.AddConstraint(
            model_name="wantedrevision",
            constraint=models.UniqueConstraint(fields=("tree", "revision"), name="wanted_revision_once"),
        ),
        migrations.AddConstraint(
            model_name="wantedrevision",
            constraint=models.CheckConstraint(
                condition=models.Q(("why__in", ["head", "merge", "tag"])), name="wanted_revision_why_known"
            ),
        ),
        migrations.RunPython(add_rules, migrations.RunPython.noop),
    ]
