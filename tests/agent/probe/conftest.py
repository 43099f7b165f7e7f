"""Every machine is written to disk and probed there, as `--root` does."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_agent.probe import Facts, probe_system

from tests.agent.probe.machines.parts import Files, write_tree

Probe = Callable[[Files], Facts]


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    numbers = itertools.count()
    return lambda files: probe_system(write_tree(tmp_path / str(next(numbers)), files))
