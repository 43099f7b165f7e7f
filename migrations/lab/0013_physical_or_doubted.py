from django.db import migrations, models
from django.db.models import F


def prove(apps, schema_editor):
    """Until now a machine was virtual by its registration or a probe, and by nothing else."""
    apps.get_model("lab", "Machine").objects.update(proved_virtual=F("virtual"))


class Migration(migrations.Migration):

    dependencies = [
        ('lab', '0012_documents'),
    ]

    operations = [
        migrations.AddField(
            model_name='machine',
            name='doubts',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='Why probes do not call it physical: sentences by code.'),
        ),
        migrations.AddField(
            model_name='machine',
            name='physical_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='machine',
            name='physical_by',
            field=models.CharField(blank=True, db_default='', default='', help_text='Who said that it is.', max_length=150),
        ),
        migrations.AddField(
            model_name='machine',
            name='physical_reason',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='machine',
            name='proved_virtual',
            field=models.BooleanField(db_default=False, default=False, help_text='Its registration or a probe says so: no word takes it back.'),
        ),
        migrations.RunPython(prove, migrations.RunPython.noop),
        migrations.AlterField(
            model_name='machine',
            name='virtual',
            field=models.BooleanField(default=False, help_text="What it measures is no evidence: proved to be virtual, or doubted and nobody's word."),
        ),
    ]
