"""Words of the environment that open a wall."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from server.env import one_of


def test_wall_stands_unless_the_word_that_opens_it_is_said_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_WALL", raising=False)
    assert one_of("TIDEMARK_WALL", "bwrap", "none") == "bwrap"
    monkeypatch.setenv("TIDEMARK_WALL", "none")
    assert one_of("TIDEMARK_WALL", "bwrap", "none") == "none"
    monkeypatch.setenv("TIDEMARK_WALL", "None")
    with pytest.raises(ImproperlyConfigured, match="TIDEMARK_WALL is 'None': it may be bwrap or none"):
        one_of("TIDEMARK_WALL", "bwrap", "none")
