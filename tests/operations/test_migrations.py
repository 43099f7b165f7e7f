"""Migrations after the first ones run beside a service at work: they rewrite no table and wait for no lock for long."""

from collections.abc import Sequence

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django_migration_linter.sql_analyser.analyser import analyse_sql_statements
from django_migration_linter.sql_analyser.postgresql import PostgresqlAnalyser

from server.operations.apps import LOCK_TIMEOUT

FIRST = "0001_initial"


def refused(statements: Sequence[str]) -> set[str]:
    errors, _, warnings = analyse_sql_statements(PostgresqlAnalyser, list(statements))
    return {issue.code for issue in (*errors, *warnings)}


def statements_of(migration: migrations.Migration, state: ProjectState) -> list[str]:
    with connection.schema_editor(collect_sql=True, atomic=migration.atomic) as editor:
        migration.apply(state, editor, collect_sql=True)
    return [line for line in editor.collected_sql if not line.startswith("--")]


@pytest.mark.django_db(transaction=True)
def test_no_later_migration_rewrites_or_locks_a_table() -> None:
    loader = MigrationLoader(connection)
    ours = [key for key, one in loader.disk_migrations.items() if one.__module__.startswith("migrations.")]
    assert len(ours) >= len({app for app, _ in ours}) > 0
    found = {}
    for app, name in ours:
        if name != FIRST:
            migration = loader.disk_migrations[app, name]
            before = loader.project_state((app, name), at_end=False)
            found[f"{app}.{name}"] = refused(statements_of(migration, before))
    assert {name: codes for name, codes in found.items() if codes} == {}


def _migration(*operations: Operation, atomic: bool = True) -> list[str]:
    class Later(migrations.Migration):
        pass

    Later.atomic, Later.operations = atomic, list(operations)
    later = Later("0002_later", "sources")
    state = MigrationLoader(connection).project_state(("sources", FIRST))
    return statements_of(later, state)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (migrations.AddField("series", "note", models.IntegerField(null=False)), "NOT_NULL"),
        (migrations.AlterField("series", "version", models.TextField()), "ALTER_COLUMN"),
        (migrations.AddIndex("series", models.Index(fields=["version"], name="by_version")), "CREATE_INDEX"),
        (migrations.RemoveField("series", "version"), "DROP_COLUMN"),
        (migrations.RenameField("series", "version", "number"), "RENAME_COLUMN"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_stop_a_service_is_refused(operation: Operation, code: str) -> None:
    assert code in refused(_migration(operation))


@pytest.mark.django_db(transaction=True)
def test_what_disturbs_nobody_may_come() -> None:
    harmless = models.IntegerField(null=True)
    assert refused(_migration(migrations.AddField("series", "note", harmless))) == set()
    index = models.Index(fields=["version"], name="by_version")
    assert refused(_migration(AddIndexConcurrently("series", index), atomic=False)) == set()


@pytest.mark.django_db(transaction=True)
def test_a_migration_gives_up_a_lock_that_others_hold() -> None:
    def told() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return str(cursor.fetchone()[0])

    before = told()
    emit_pre_migrate_signal(0, False, "default")
    assert told() == LOCK_TIMEOUT
    emit_post_migrate_signal(0, False, "default")
    assert told() == before
