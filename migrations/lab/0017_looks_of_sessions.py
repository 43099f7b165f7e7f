from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):

    dependencies = [
        ('lab', '0016_stored_bytes'),
    ]

    operations = [
        migrations.AlterField(
            model_name='session',
            name='looks',
            field=ArrayField(
                models.PositiveIntegerField(),
                blank=True,
                db_default=Value([]),
                default=list,
                help_text='Boots a side at which it is judged (stats/comparison/decisions.py); empty: once, when all are in.',
            ),
        ),
    ]
