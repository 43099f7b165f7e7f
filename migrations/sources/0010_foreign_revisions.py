from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sources", "0009_approved_by_a_person"),
    ]

    operations = [
        migrations.AddField(
            model_name="revision",
            name="foreign",
            field=models.BooleanField(
                db_default=True,
                default=True,
                help_text="Holds code of mails that no watched tree published, whatever its tree and its refs are called.",
            ),
        ),
    ]
