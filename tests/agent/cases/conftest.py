from pathlib import Path

import pytest
from tidemark_agent.cases import execution
from tidemark_agent.cases.execution import oom_kills

from tests.agent.cases.support import Bench


@pytest.fixture(autouse=True)
def _no_stop_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program that ends badly is followed by a wait for a stop that may have ended it."""
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.05)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # The host counts what tests beside this one have killed for want of memory.
    monkeypatch.setattr(execution, "oom_kills", lambda root: 0 if root == Path("/") else oom_kills(root))
    return Bench(tmp_path)
