"""What every model and every state must have."""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations import AddField, CreateModel, Migration
from django.db.migrations.loader import MigrationLoader

from server.core.states import Stateful

OWN = [model for model in apps.get_models() if model.__module__.startswith("server.")]
STATEFUL = [model for model in OWN if issubclass(model, Stateful)]


@pytest.mark.parametrize("model", OWN, ids=lambda model: model.__name__)
def test_model_says_what_a_row_is(model: type[models.Model]) -> None:
    assert model.__str__ is not models.Model.__str__


@pytest.mark.parametrize("model", STATEFUL, ids=lambda model: model.__name__)
def test_database_knows_the_states_that_code_knows(model: type[Stateful]) -> None:
    known = {state for ways in model.NEXT.values() for state in ways} | set(model.NEXT)
    allowed = [states for check in model._meta.constraints if (states := _states_allowed_by(check))]
    assert len(allowed) == 1
    assert known <= allowed[0]


def _states_allowed_by(check: models.BaseConstraint) -> set[str] | None:
    """What a constraint of the form `state in (...)` allows; None for any other."""
    if not isinstance(check, models.CheckConstraint) or not isinstance(check.condition, models.Q):
        return None
    match check.condition.children:
        case [("state__in", list(states))]:
            return {str(state) for state in states}
    return None


@pytest.mark.django_db
@pytest.mark.parametrize("model", STATEFUL, ids=lambda model: model.__name__)
def test_constraint_in_the_database_names_every_state(model: type[Stateful]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'",
            [model._meta.db_table],
        )
        definitions = " ".join(row[0] for row in cursor.fetchall())
    for state in model.NEXT:
        assert f"'{state}'" in definitions


@pytest.mark.django_db
def test_migrations_hold_all_that_models_say() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_column_that_came_later_has_a_default_in_the_database() -> None:
    """The running old version writes rows without it while the new one is being started.

    It does not know tables that came with the same migration.
    """
    loader = MigrationLoader(None)
    state = loader.project_state()
    added = [
        state.models[app, operation.model_name_lower].fields[operation.name]
        for (app, _name), migration in loader.disk_migrations.items()
        for operation in migration.operations
        if isinstance(operation, AddField) and not migration.initial and migration.__module__.startswith("migrations.")
        if operation.model_name_lower not in _created(migration)
        # Another migration may have dropped it since.
        if operation.name in state.models[app, operation.model_name_lower].fields
    ]
    assert added
    assert [field for field in added if not field.null and not field.has_db_default()] == []


def _created(migration: Migration) -> set[str]:
    return {operation.name_lower for operation in migration.operations if isinstance(operation, CreateModel)}
