"""What several tests of the life of findings start from."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from tests.detection.lifecycle.mending import World, make_world


@pytest.fixture
def world(db: None, tmp_path: Path, settings: Settings) -> World:
    """Nothing is bisected meanwhile."""
    settings.BISECT_HOURS = 0
    return make_world(tmp_path)
