"""The repository's own files, as the house rules look at them."""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("server", "workers", "agents", "client", "demo", "scripts", "bench", "tests")
# Made by tools or fetched, like every hidden folder but these.
_MADE = {"node_modules", "staticfiles", "__pycache__"}
_HIDDEN_AND_OURS = {".ci"}


def python_files(*folders: str) -> list[Path]:
    """All Python files written by hand in `folders`, by default in every package."""
    return sorted(path for folder in folders or PACKAGES for path in (ROOT / folder).rglob("*.py"))


def text_files() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository with its content."""
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name in _HIDDEN_AND_OURS or not (name in _MADE or name[0] == ".")]
        for name in files:
            path = Path(folder) / name
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))
