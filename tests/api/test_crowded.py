"""Answers about what was filled to the bounds: in pages, or piece by piece."""

import json
from typing import Any

import pytest
from django.test import Client

from server.lab.models import Session
from tests.builders import build_session
from tests.crowded import CELLS, VALUES, crowd, crowd_comparisons, crowd_noise, finding_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    return build_session(state=Session.State.DONE)


def follow(client: Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    address: str | None = f"/api/v1/{path}"
    while address:
        answer = client.get(address).json()
        assert 0 < len(answer["cells"]) <= 500
        found += answer["cells"]
        address = answer["next"]
    return found


def test_noise_of_a_crowded_machine_comes_in_pages(client: Client, session: Session) -> None:
    crowd_noise(session.machine)
    cells = follow(client, f"machines/{session.machine.name}/noise/")
    assert len({(cell["case"], cell["metric"], cell["core_type"]) for cell in cells}) == len(cells) == CELLS


def test_cells_of_a_crowded_session_come_in_pages(client: Client, session: Session) -> None:
    crowd_comparisons(session)
    cells = follow(client, f"sessions/{session.pk}/cells/")
    assert len({cell["comparison_id"] for cell in cells}) == len(cells) == CELLS


def test_finding_tells_the_cells_that_moved_and_how_many_it_leaves_out(client: Client, session: Session) -> None:
    crowd_comparisons(session)
    told = client.get(f"/api/v1/findings/{finding_of(session).pk}/").json()
    assert len(told["comparisons"]) + told["comparisons_left_out"] == CELLS
    assert sum(cell["verdict"] == "regressed" for cell in told["comparisons"]) == CELLS // 100
    assert len(told["comparisons"]) <= 500


def test_samples_leave_piece_by_piece_and_are_whole(client: Client, session: Session) -> None:
    crowd(session)
    answer = client.get(f"/api/v1/sessions/{session.pk}/samples/")
    assert answer.streaming
    pieces = [bytes(piece) for piece in answer]
    assert len(pieces) > CELLS
    assert max(map(len, pieces)) < 10_000
    told = json.loads(b"".join(pieces))
    assert len(told["columns"]) == CELLS
    assert {len(column["values"]) for column in told["columns"]} == {4}
    assert {len(values) for column in told["columns"] for values in column["values"]} == {VALUES}
