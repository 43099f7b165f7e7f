"""Properties are tried on the same examples in every run, so that no change fails by luck."""

import sys
import types
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import PROFILE

pytestmark = pytest.mark.skipif(PROFILE != "steady", reason="examples are explored")


def _examples() -> list[int]:
    drawn: list[int] = []

    @given(st.integers())
    def collect(number: int) -> None:
        drawn.append(number)

    collect()
    return drawn


def test_examples_are_the_same_each_time() -> None:
    assert _examples() == _examples()
    assert settings.default is not None
    assert len(_examples()) == settings.default.max_examples


def test_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _examples()
    source = tmp_path / "numbers_of_a_room.py"
    source.write_text(f"NUMBERS = {list(range(1000, 1400))}\n")
    module = types.ModuleType(source.stem)
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, source.stem, module)
    assert _examples() == before
