"""Revisions that were wanted before heads were measured: all of them at once would keep the machines for months."""

from django.db import migrations
from django.db.models import Exists, OuterRef
from django.utils import timezone

OUTCOME = "not measured: it was wanted before heads were measured"


def give_up_old_ones(apps, schema_editor):
    """Of each tree only the newest is left to be measured: its timelines begin there."""
    wanted = apps.get_model("sources", "WantedRevision")
    newer = wanted.objects.filter(tree=OuterRef("tree"), pk__gt=OuterRef("pk"))
    wanted.objects.filter(Exists(newer), taken_at=None).update(taken_at=timezone.now(), outcome=OUTCOME)


class Migration(migrations.Migration):
    dependencies = [("sources", "0004_references")]

    operations = [migrations.RunPython(give_up_old_ones, migrations.RunPython.noop)]
