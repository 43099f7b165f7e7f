"""Whoever owns a machine fills its boots to the bounds; a page that anybody may ask for stays small."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from server.core.models import Transition
from server.lab.models import Session
from tests.builders import build_session, tell_boots
from tests.crowded import CELLS, crowd, crowd_comparisons, crowd_noise, finding_of
from tests.kept import kept_rows, settle

pytestmark = pytest.mark.django_db
MB = 1024 * 1024


@pytest.fixture(scope="module")
def session(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    with kept_rows(django_db_blocker, tmp_path_factory.mktemp("state")):
        session = build_session(state=Session.State.DONE, boots_per_side=2)
        crowd(session)
        settle()
        yield session


def read(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    text = response.content.decode()
    assert len(text) < 2 * MB
    return text


def test_page_of_a_crowded_session_draws_some_charts_and_leads_to_the_next(client: Client, session: Session) -> None:
    text = read(client, f"/sessions/{session.pk}/values/")
    assert f"of {CELLS} charts, from number 1 on" in text
    following = text.split('rel="next" href="?charts=')[1].split("#")[0]
    assert 0 < int(following) < CELLS
    further = read(client, f"/sessions/{session.pk}/values/?charts={following}")
    assert f"from number {int(following) + 1} on" in further
    assert "the first ones" in further
    moved = client.get(f"/sessions/{session.pk}/?charts={following}")
    assert moved.headers["Location"] == f"/sessions/{session.pk}/values/?charts={following}"


@pytest.mark.parametrize("given", ["-1", "99999999999999999999", "x", "1e3", "²"])
def test_charts_from_nowhere_are_the_first_ones(client: Client, session: Session, given: str) -> None:
    assert "from number 1 on" in read(client, f"/sessions/{session.pk}/values/?charts={given}")


def test_pages_of_a_crowded_series_show_what_moved_and_count_the_rest(client: Client, session: Session) -> None:
    crowd_comparisons(session)
    finding = finding_of(session)
    for home in (f"/series/{session.series_id}/", f"/findings/{finding.pk}/"):
        assert len(read(client, home)) < 250_000
        figures = read(client, f"{home}figures/")
        assert "more rows in which less moved" in figures
        assert "more charts of these cases: see the sessions." in read(client, f"{home}boots/")
    assert "more in which less moved" in read(client, f"/sessions/{session.pk}/")


def test_no_page_reads_the_values_of_charts_that_it_does_not_draw(client: Client, session: Session) -> None:
    with CaptureQueriesContext(connection) as captured:
        read(client, f"/sessions/{session.pk}/values/")
    asked = [query["sql"] for query in captured if '"results_measurement"."values"' in query["sql"]]
    # What counts them reads none; this names the cases of which it reads.
    assert len(asked) == 1
    assert '"case_id" IN' in asked[0]


def test_page_of_a_crowded_machine_shows_the_cells_that_vary_most(client: Client) -> None:
    machine = build_session().machine
    crowd_noise(machine)
    assert "more cells that vary less" in read(client, f"/machines/{machine.name}/")


def test_boot_with_thousands_of_notes_shows_some(client: Client) -> None:
    session = build_session(state=Session.State.DONE)
    told = {"benchmark": "b", "case": "c", "outcome": "refused"}
    notes = [{**told, "reason": f"{number} " + "x" * 1000} for number in range(2000)]
    session.boots.update(notes=notes)
    assert "1980 more" in read(client, f"/sessions/{session.pk}/")


def test_facts_and_settings_without_end_are_named_up_to_some(client: Client) -> None:
    session = build_session(state=Session.State.DONE, boots_per_side=2)
    for boot in session.boots.all():
        facts = {f"fact-{boot.position}-{number}": "x" for number in range(5000)}
        settings = [{"name": f"setting-{boot.position}-{number}", "after": "y"} for number in range(5000)]
        tell_boots([boot], facts=facts, conditions={"settings": settings})
    text = read(client, f"/sessions/{session.pk}/")
    assert "perhaps some of" in text
    assert len(text) < MB // 4


def test_history_without_end_shows_its_last_steps(client: Client) -> None:
    session = build_session(state=Session.State.DONE)
    step = {"trace": "", "subject": "session", "subject_id": session.pk, "before": "a", "after": "b"}
    Transition.objects.bulk_create(Transition(reason=f"{number} " + "x" * 4000, **step) for number in range(2500))
    text = read(client, f"/sessions/{session.pk}/")
    assert "but for the first" in text
    assert "2499 xxx" in text
