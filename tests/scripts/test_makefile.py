"""Targets that must work in a checkout where setup was killed in the middle."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def make(target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "MAKE", "MFLAGS"))}
    return subprocess.run(["make", target], cwd=folder, env=plain, capture_output=True, text=True, check=False)


@pytest.fixture
def half_made(tmp_path: Path) -> Path:
    """Python is there, its packages are not."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho ModuleNotFoundError >&2\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / ".local").mkdir()
    return tmp_path


@pytest.mark.parametrize("target", ["stop", "status"])
def test_half_made_environment_is_named(half_made: Path, target: str) -> None:
    done = make(target, half_made)
    assert done.returncode == 0, done.stderr
    assert "no whole .venv" in done.stdout
    assert "ModuleNotFoundError" not in done.stderr


def test_clean_removes_a_half_made_environment(half_made: Path) -> None:
    done = make("clean", half_made)
    assert done.returncode == 0, done.stderr
    assert "ModuleNotFoundError" not in done.stderr
    assert [path.name for path in half_made.iterdir()] == ["Makefile"]


def test_clean_removes_even_when_the_stack_cannot_be_ended(half_made: Path) -> None:
    (half_made / ".venv/bin/python").write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    done = make("clean", half_made)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in half_made.iterdir()] == ["Makefile"]
