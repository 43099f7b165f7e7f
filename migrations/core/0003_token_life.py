from datetime import timedelta

from django.db import migrations, models

import server.core.clock


def give_an_end(apps, _schema_editor):
    """Tokens that would never have ended end as those that are issued today."""
    tokens = apps.get_model("core", "ApiToken").objects.filter(expires_at=None)
    tokens.update(created_at=server.core.clock.now(), expires_at=server.core.clock.now() + timedelta(days=180))


class Migration(migrations.Migration):
    # Changing a table that was just written to wants another transaction.
    atomic = False
    dependencies = [("core", "0002_dispatch")]

    operations = [
        migrations.RunPython(give_an_end, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="apitoken",
            name="created_at",
            field=models.DateTimeField(default=server.core.clock.now),
        ),
        migrations.AlterField(model_name="apitoken", name="expires_at", field=models.DateTimeField()),
        migrations.AlterField(
            model_name="apitoken",
            name="name",
            field=models.CharField(
                db_index=True, help_text="The same for a token and those it is renewed by.", max_length=100
            ),
        ),
    ]
