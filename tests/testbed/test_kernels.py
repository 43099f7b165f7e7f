"""Each kernel is built once, and is what it says it is."""

from pathlib import Path

import pytest
from tidemark_agent.system.elf import build_id_of_notes

from tests.testbed import kernels
from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import BASE, DYING, PATCHED, SAFE, Recipe, kernel

pytestmark = pytest.mark.real


def test_kernel_that_is_there_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = kernel(BASE)

    def build(recipe: Recipe, folder: Path) -> None:
        raise AssertionError(f"{recipe.name} is built again")

    monkeypatch.setattr(kernels, "_build", build)
    assert kernel(BASE) == first


def test_kernels_tell_themselves_apart() -> None:
    made = [kernel(recipe) for recipe in (SAFE, BASE, PATCHED, DYING)]
    assert len({one.build_id for one in made}) == len(made)
    assert [one.release.endswith("-safe") for one in made] == [True, False, False, False]
    assert kernel(PATCHED).release == kernel(BASE).release


def test_running_kernel_shows_the_build_id_that_was_promised(tmp_path: Path) -> None:
    made = kernel(PATCHED)
    output = run_in_guest({}, "uname -r; xxd -p -c 4096 /sys/kernel/notes", folder=tmp_path, kernel=made.image)
    release, notes = output.split()
    assert release == made.release
    assert build_id_of_notes(bytes.fromhex(notes)) == made.build_id
