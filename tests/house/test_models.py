"""What every model and every state must have."""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations import AddField, CreateModel, Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

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


def test_column_that_comes_later_has_a_default_in_the_database() -> None:
    """The running old version writes rows without it while the new one is being started.

    It does not know tables that come with the same migration.
    """
    loader = MigrationLoader(None)
    ours = [m for m in loader.disk_migrations.values() if m.__module__.startswith("migrations.") and not m.initial]
    assert [name for migration in ours for name in _added_without_default(migration, loader.project_state())] == []


def test_rule_of_columns_that_come_later_sees_one_without_a_default() -> None:
    state = ProjectState()
    bare = AddField("old", "bare", models.IntegerField())
    full = AddField("old", "full", models.IntegerField(db_default=0))
    own = AddField("new", "own", models.IntegerField())
    created = [CreateModel("old", []), CreateModel("new", [])]
    later = type("Later", (Migration,), {"operations": [created[1], bare, full, own]})("later", "lab")
    for operation in [*created, bare, full, own]:
        operation.state_forwards("lab", state)
    assert _added_without_default(later, state) == ["old.bare"]


def _added_without_default(migration: Migration, state: ProjectState) -> list[str]:
    created = {operation.name_lower for operation in migration.operations if isinstance(operation, CreateModel)}
    found = []
    for operation in migration.operations:
        if not isinstance(operation, AddField) or operation.model_name_lower in created:
            continue
        # Another migration may have dropped it since.
        field = state.models[migration.app_label, operation.model_name_lower].fields.get(operation.name)
        if field is not None and not field.null and not field.has_db_default():
            found.append(f"{operation.model_name_lower}.{operation.name}")
    return found
