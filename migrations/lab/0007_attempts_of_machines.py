"""Attempts at sessions know their machine themselves now."""

from django.db import migrations

# Nothing kept two attempts from being active on one machine before, and now a constraint does: the second of them goes
# on without its machine until it ends.
FILL = """
UPDATE lab_attempt SET machine_id = lab_session.machine_id
FROM lab_session
WHERE lab_session.id = lab_attempt.session_id AND lab_attempt.machine_id IS NULL AND (
    lab_attempt.state IN ('done', 'lost', 'canceled')
    OR lab_attempt.id = (
        SELECT min(other.id) FROM lab_attempt AS other JOIN lab_session AS its ON its.id = other.session_id
        WHERE its.machine_id = lab_session.machine_id AND other.state NOT IN ('done', 'lost', 'canceled')
    )
)
"""


class Migration(migrations.Migration):
    dependencies = [("lab", "0006_dispatch")]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
