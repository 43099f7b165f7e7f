"""The rules a new site begins with; `manage.py load_rules` brings back those that were deleted."""

from django.db import migrations

from server.sources.measure_rules import RULES


def add_rules(apps, schema_editor):
    model = apps.get_model("sources", "MeasureRule")
    model.objects.bulk_create(
        [model(pattern=r.pattern, benchmarks=list(r.benchmarks), note=r.note) for r in RULES], ignore_conflicts=True
    )


class Migration(migrations.Migration):
    dependencies = [("sources", "0002_watching")]

    operations = [migrations.RunPython(add_rules, migrations.RunPython.noop)]
