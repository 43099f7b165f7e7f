from pathlib import Path

import pytest

from tests.agent.cases.support import Bench


@pytest.fixture(autouse=True)
def _no_stop_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program that ends badly is followed by a wait for a stop that may have ended it."""
    monkeypatch.setattr("tidemark_agent.process._STOP_SECONDS", 0.05)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
