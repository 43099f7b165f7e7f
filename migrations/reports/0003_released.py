# A person released a report, or nobody had to.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('reports', '0002_open_and_recent'),
    ]

    operations = [
        migrations.AddField(
            model_name='report',
            name='released',
            field=models.BooleanField(db_default=False, default=False, help_text='A person released it.'),
        ),
    ]
