from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):
    dependencies = [
        ("lab", "0003_words"),
    ]

    operations = [
        migrations.AlterField(
            model_name="attempt",
            name="log",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="The end of what the agent logged, as its heartbeats brought it.",
            ),
        ),
        migrations.AlterField(
            model_name="boot",
            name="conditions",
            field=models.JSONField(
                blank=True,
                db_default=Value({}, models.JSONField()),
                default=dict,
                help_text="Settings, samples and counters around the cases (agent-protocol.md).",
            ),
        ),
    ]
