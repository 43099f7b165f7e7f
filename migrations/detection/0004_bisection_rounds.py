from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("detection", "0003_trials"),
    ]

    operations = [
        migrations.AddField(
            model_name="bisection",
            name="round",
            field=models.PositiveIntegerField(
                db_default=1, default=1, help_text="Counted up when it is searched once more."
            ),
        ),
        migrations.AddField(
            model_name="bisectionstep",
            name="round",
            field=models.PositiveIntegerField(db_default=1, default=1),
        ),
    ]
