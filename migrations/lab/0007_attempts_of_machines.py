"""Attempts at sessions know their machine themselves now."""

from django.db import migrations

_FILL = """
UPDATE lab_attempt SET machine_id = lab_session.machine_id
FROM lab_session WHERE lab_session.id = lab_attempt.session_id AND lab_attempt.machine_id IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("lab", "0006_dispatch")]

    operations = [migrations.RunSQL(_FILL, migrations.RunSQL.noop)]
