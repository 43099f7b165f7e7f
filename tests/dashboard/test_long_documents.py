"""What a boot tells at length is read where it is shown, and nowhere else."""

import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from server.lab.models import Session
from tests.builders import tell_boots
from tests.kept import kept_rows, settle
from tests.scenarios import erms_regression

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("virtual_verdicts")]

# Whole documents of a boot: conditions may have a megabyte each.
_WHOLE = re.compile(
    r'"lab_(?:conditions|machinefacts)"\."document"(?:,| FROM| AS)|"lab_conditions"\."console_tail"|"lab_boot"\."notes"'
)
_PAGES = (
    "/",
    "/series/",
    "/series/{series}/",
    "/sessions/{session}/",
    "/machines/",
    "/findings/",
    "/queue/",
    "/status/",
)
_ANSWERS = (
    "sessions/",
    "sessions/{session}/",
    "sessions/{session}/samples/",
    "series/{series}/",
    "machines/",
    "findings/",
)


@pytest.fixture(scope="module")
def session(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    with kept_rows(django_db_blocker, tmp_path_factory.mktemp("state")), override_settings(VIRTUAL_VERDICTS=True):
        session = erms_regression().sessions.get(machine__name="vm-zen3")
        tell_boots(session.boots.all(), conditions={"samples": ["x" * 1000], "settings": []}, console="long")
        settle()
        yield session


@pytest.mark.parametrize("path", [*_PAGES, *(f"/api/v1/{path}" for path in _ANSWERS)])
def test_no_page_reads_the_long_documents_of_boots(client: Client, session: Session, path: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path.format(series=session.series_id, session=session.pk)).status_code == 200
    asked = [query["sql"] for query in captured if _WHOLE.search(query["sql"])]
    # The page of a session shows the consoles of boots that failed, and only reads those; it and its answer, the notes.
    of_session = path.endswith("sessions/{session}/")
    consoles = [sql for sql in asked if "console_tail" in sql and "'failed'" in sql and path == "/sessions/{session}/"]
    notes = [sql for sql in asked if "notes" in sql and of_session]
    assert asked == [sql for sql in asked if sql in consoles or sql in notes]
    assert len(notes) == of_session
