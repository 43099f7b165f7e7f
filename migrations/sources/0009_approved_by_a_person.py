from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sources", "0008_open_and_recent"),
    ]

    operations = [
        migrations.AddField(
            model_name="series",
            name="approved_at",
            field=models.DateTimeField(blank=True, help_text="When a person last let it run.", null=True),
        ),
    ]
