import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models

import server.core.addresses
import server.core.clock
import server.core.reasons
import server.core.states


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("detection", "0001_initial"),
        ("lab", "0001_initial"),
        ("results", "0001_initial"),
        ("sources", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OptOut",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=320, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["address"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("address", django.db.models.functions.text.Lower("address"))),
                        name="opt_out_lower_case",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Report",
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
                ("subject", models.CharField(blank=True, max_length=200)),
                ("body", models.TextField(blank=True, help_text="What leaves; a person may have edited it.")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("series", "report on a series"),
                            ("tree", "regression of a tree"),
                            ("bisection", "result of a bisection"),
                            ("follow-up", "new version of a series"),
                            ("retraction", "retraction"),
                            ("correction", "correction"),
                            ("digest", "weekly digest"),
                            ("notice", "notice to a subscriber"),
                            ("answer", "answer to a command"),
                        ],
                        default="series",
                        max_length=12,
                    ),
                ),
                (
                    "key",
                    models.CharField(blank=True, help_text="What is told once, beside first reports.", max_length=200),
                ),
                ("composed", models.TextField(blank=True, help_text="The text as it was written from the rows.")),
                ("in_reply_to", models.CharField(blank=True, max_length=500)),
                (
                    "references",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=500), blank=True, default=list, size=None
                    ),
                ),
                (
                    "to",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320), blank=True, default=list, size=None
                    ),
                ),
                (
                    "cc",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320), blank=True, default=list, size=None
                    ),
                ),
                ("released", models.BooleanField(default=False, help_text="A person released it.")),
                (
                    "told",
                    models.JSONField(
                        blank=True,
                        help_text="What it claims: ids of comparisons that moved, and of culprits.",
                        null=True,
                    ),
                ),
                (
                    "finding",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reports",
                        to="detection.finding",
                    ),
                ),
                (
                    "first_of",
                    models.OneToOneField(
                        blank=True,
                        help_text="Its first report.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="report",
                        to="detection.finding",
                    ),
                ),
                (
                    "answers",
                    models.ForeignKey(
                        blank=True,
                        help_text="The report that it puts right or goes on with.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="answered_by",
                        to="reports.report",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
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
                ("message_id", models.CharField(max_length=200, unique=True)),
                ("tries", models.PositiveIntegerField(default=0)),
                ("not_before", models.DateTimeField(blank=True, null=True)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "in_doubt",
                    models.BooleanField(default=False, help_text="A try ended without an answer: it may have arrived."),
                ),
                (
                    "put_off",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=320),
                        blank=True,
                        default=list,
                        help_text="Addresses that the mail server takes later, while the others have the mail.",
                        size=None,
                    ),
                ),
                (
                    "report",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="delivery", to="reports.report"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ["-id"],
            },
        ),
        migrations.AddIndex(
            model_name="report",
            index=models.Index(
                condition=models.Q(("state__in", ["draft", "held", "approved"])), fields=["state"], name="report_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="report",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["draft", "held", "approved", "sent", "rejected", "refused"])),
                name="report_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="report",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state", "refused"),
                    models.Q(models.Q(("body", ""), _negated=True), models.Q(("to", []), _negated=True)),
                    _connector="OR",
                ),
                name="report_has_text_and_reader",
            ),
        ),
        migrations.AddConstraint(
            model_name="report",
            constraint=models.CheckConstraint(
                condition=models.Q(("first_of", None), ("first_of", models.F("finding")), _connector="OR"),
                name="report_first_of_its_own",
            ),
        ),
        migrations.AddConstraint(
            model_name="report",
            constraint=models.CheckConstraint(
                condition=models.Q(("first_of__isnull", False), models.Q(("key", ""), _negated=True), _connector="OR"),
                name="report_has_its_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="report",
            constraint=models.UniqueConstraint(
                condition=models.Q(("key", ""), _negated=True), fields=("key",), name="report_once"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state__in", ["queued", "sending", "failed"])),
                fields=["state"],
                name="delivery_open",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(condition=models.Q(("state", "sent")), fields=["sent_at"], name="delivery_sent"),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["queued", "sending", "sent", "failed"])), name="delivery_state_known"
            ),
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "way",
                    models.CharField(choices=[("mail", "mail"), ("webhook", "webhook")], default="mail", max_length=10),
                ),
                (
                    "pace",
                    models.CharField(
                        choices=[("each", "each finding"), ("weekly", "a digest of its tree each week")],
                        default="each",
                        max_length=10,
                    ),
                ),
                (
                    "url",
                    models.CharField(
                        blank=True,
                        help_text="Of a webhook.",
                        max_length=500,
                        validators=[server.core.addresses.check_address],
                    ),
                ),
                (
                    "salt",
                    models.CharField(
                        blank=True, help_text="Its secret is made of this and the site's own.", max_length=32
                    ),
                ),
                (
                    "claim",
                    models.CharField(
                        blank=True,
                        choices=[("regressed", "what regressed somewhere"), ("improved", "what improved somewhere")],
                        max_length=10,
                    ),
                ),
                (
                    "path",
                    models.CharField(blank=True, help_text="With which that of a changed file begins.", max_length=200),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "benchmark",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="results.benchmark",
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sources.tree",
                    ),
                ),
                (
                    "uarch",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="lab.microarchitecture",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="HookCall",
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
                    "target",
                    models.CharField(
                        choices=[
                            ("webhook", "webhook of a subscription"),
                            ("patchwork", "check in Patchwork"),
                            ("kcidb", "report to KCIDB"),
                        ],
                        max_length=10,
                    ),
                ),
                ("key", models.CharField(help_text="What is told once.", max_length=200, unique=True)),
                ("event", models.CharField(max_length=20)),
                ("document", models.JSONField()),
                ("tries", models.PositiveIntegerField(default=0)),
                ("not_before", models.DateTimeField(blank=True, null=True)),
                ("status", models.PositiveIntegerField(blank=True, help_text="Of the last answer.", null=True)),
                (
                    "finding",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="calls", to="detection.finding"
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="calls",
                        to="reports.subscription",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(condition=models.Q(("ended_at", None)), fields=["id"], name="subscription_active"),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("url", ""), ("way", "mail")),
                    models.Q(
                        ("way", "webhook"), models.Q(("url", ""), _negated=True), models.Q(("salt", ""), _negated=True)
                    ),
                    _connector="OR",
                ),
                name="subscription_has_its_way",
            ),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("pace", "weekly"), _negated=True),
                    models.Q(("tree__isnull", False), ("way", "mail")),
                    _connector="OR",
                ),
                name="subscription_digest_of_a_tree",
            ),
        ),
        migrations.AddIndex(
            model_name="hookcall",
            index=models.Index(
                condition=models.Q(("state__in", ["queued", "sending"])), fields=["state"], name="hook_call_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="hookcall",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["queued", "sending", "sent", "failed"])), name="hook_call_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="hookcall",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("subscription__isnull", False), ("target", "webhook")),
                    models.Q(("subscription", None), models.Q(("target", "webhook"), _negated=True)),
                    _connector="OR",
                ),
                name="hook_call_has_its_target",
            ),
        ),
        migrations.CreateModel(
            name="MailStop",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("person", models.CharField(max_length=230)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField(default=server.core.clock.now)),
                ("ended_by", models.CharField(blank=True, max_length=230)),
                ("ended_because", models.TextField(blank=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("ended_at",),
                        name="mail_stop_one_at_a_time",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("person", ""), _negated=True), models.Q(("reason", ""), _negated=True)
                        ),
                        name="mail_stop_says_who_and_why",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RestingAddress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=320, unique=True)),
                ("since", models.DateTimeField(default=server.core.clock.now)),
                ("reason", models.TextField(help_text="What made it rest.")),
                (
                    "lifted_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="It is written to again; what came back before does not count any more.",
                        null=True,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "resting addresses",
                "ordering": ["address"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("address", django.db.models.functions.text.Lower("address"))),
                        name="resting_lower_case",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Bounce",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.CharField(max_length=320)),
                ("permanent", models.BooleanField(help_text="The server will not take such a mail later, either.")),
                (
                    "status",
                    models.CharField(blank=True, help_text="RFC 3463, such as 5.1.1; empty: not told.", max_length=11),
                ),
                ("said", models.TextField(blank=True, help_text="The words of the mail server.")),
                ("at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="bounces", to="reports.delivery"
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        blank=True,
                        help_text="The mail that told it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sources.message",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["address", "at"], name="bounce_of_address"),
                    models.Index(condition=models.Q(("permanent", True)), fields=["at"], name="bounce_permanent"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("delivery", "address", "message"), name="bounce_told_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("message", None)),
                        fields=("delivery", "address"),
                        name="bounce_answered_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("address", django.db.models.functions.text.Lower("address"))),
                        name="bounce_lower_case",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReturnedMail",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "meaning",
                    models.CharField(
                        choices=[
                            ("bounce", "an address does not take a mail of ours"),
                            ("delay", "a mail of ours is late, and still on its way"),
                            ("automatic", "an automatic answer"),
                            ("not-ours", "tells of no mail of this site, or of nobody that it was sent to"),
                            ("other", "no notice of a mail server"),
                        ],
                        max_length=10,
                    ),
                ),
                ("read_at", models.DateTimeField(default=server.core.clock.now)),
                (
                    "message",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="returned", to="sources.message"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("meaning__in", ["bounce", "delay", "automatic", "not-ours", "other"])),
                        name="returned_mail_meaning_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ReadingMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reader", models.CharField(max_length=20, unique=True)),
                ("up_to", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="MailCommand",
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
                ("line", models.PositiveIntegerField(help_text="In the text of its mail, from 1.")),
                ("text", models.CharField(blank=True, max_length=1000)),
                (
                    "verb",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("retest", "measure all of it again"),
                            ("test", "measure some of it again"),
                            ("accept", "it is a known trade-off"),
                            ("invalid", "it is wrong"),
                            ("dup", "another finding tells of it"),
                            ("fix", "a commit with this subject mends it"),
                            ("stop", "no more mails"),
                        ],
                        help_text="Empty: none was understood.",
                        max_length=10,
                    ),
                ),
                ("sender", models.CharField(blank=True, help_text="Lower case.", max_length=320)),
                (
                    "role",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("author", "author of what was measured"),
                            ("trusted", "trusted sender"),
                            ("triager", "user of this site who may decide about findings"),
                            ("maintainer", "maintainer of what is changed"),
                            ("reader", "one of those our mail went to"),
                        ],
                        help_text="By which it was obeyed.",
                        max_length=10,
                    ),
                ),
                (
                    "by_name",
                    models.CharField(
                        blank=True, db_index=True, help_text="Hash of sender and Message-ID.", max_length=64
                    ),
                ),
                (
                    "by_text",
                    models.CharField(
                        blank=True, db_index=True, help_text="Hash of what its signature covers of it.", max_length=64
                    ),
                ),
                (
                    "tried_at",
                    models.DateTimeField(blank=True, help_text="When its sender was last looked for.", null=True),
                ),
                (
                    "answer",
                    models.ForeignKey(
                        blank=True,
                        help_text="What was answered.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="commands",
                        to="reports.report",
                    ),
                ),
                (
                    "delivery",
                    models.ForeignKey(
                        help_text="The mail of ours that it answers.",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="commands",
                        to="reports.delivery",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="commands", to="sources.message"
                    ),
                ),
                (
                    "trial",
                    models.ForeignKey(
                        blank=True,
                        help_text="Asked for by it.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="commands",
                        to="lab.trial",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["state", "-id"], name="mail_command_in_state"),
                    models.Index(fields=["sender", "-id"], name="mail_command_of_sender"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "under-way", "done", "refused", "ignored"])),
                        name="mail_command_state_known",
                    ),
                    models.UniqueConstraint(fields=("message", "line"), name="mail_command_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("verb__in", ["", "retest", "test", "accept", "invalid", "dup", "fix", "stop"])
                        ),
                        name="mail_command_verb_known",
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "sent"), models.Q(("put_off", []), _negated=True)),
                fields=["not_before"],
                name="delivery_rest",
            ),
        ),
    ]
