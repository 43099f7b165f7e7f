"""Who may import whom, beside the contracts that import-linter checks."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.lab import port
from tests.house.sources import PACKAGES, ROOT, name_of, python_files


def _imported(path: Path) -> set[str]:
    """First words of all modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def test_agents_need_the_standard_library_only() -> None:
    # A benchmark's script may use other files of benchmarks, which are laid beside it.
    beside = {path.stem for path in python_files("agents/benchmarks")}
    allowed = {*sys.stdlib_module_names, "tidemark_agent", *beside}
    foreign = {name_of(path): strange for path in python_files("agents") if (strange := _imported(path) - allowed)}
    assert foreign == {}


@pytest.mark.parametrize("package", ["server", "workers", "demo", "migrations", "scripts", "tests", "tidemark_agent"])
def test_package_is_the_repository_s_own(package: str) -> None:
    """Short names like these are on the package index too; an installed one must not be taken for ours."""
    module = importlib.import_module(package)
    folders = [Path(folder).resolve() for folder in module.__path__]
    assert folders in ([ROOT / package], [ROOT / "agents" / package])


def test_contracts_between_rooms_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    path = f"{ROOT}:{ROOT / 'agents'}"
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ADAPTERS = ROOT / "server/lab/dispatch"
OUTSIDE = [path for path in python_files("server", "workers", "demo") if ADAPTERS not in path.parents]
NAMES = set(port._ADAPTERS)


def test_nobody_asks_which_dispatcher_it_is() -> None:
    """What they do otherwise than others, adapters say by the port's properties."""
    asking = {
        f"{name_of(path)}:{node.lineno}"
        for path in OUTSIDE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and _compared(node) & NAMES
    }
    in_pages = re.compile(rf'[!=]= "({"|".join(NAMES)})"')
    asking |= {name_of(path) for path in (ROOT / "templates").rglob("*.html") if in_pages.search(path.read_text())}
    assert asking == set()


def _compared(node: ast.Compare) -> set[object]:
    sides = (part for side in (node.left, *node.comparators) for part in ast.walk(side))
    return {part.value for part in sides if isinstance(part, ast.Constant)}


def test_nobody_reads_a_run_at_jenkins_by_way_of_its_attempt() -> None:
    """The contract of import-linter sees who imports its tables; this, who names them in a query."""
    assert [name_of(path) for path in OUTSIDE if "jenkins_run" in path.read_text(encoding="utf-8")] == []


def test_every_folder_of_tests_is_a_package() -> None:
    """Two rooms may then name a test file alike."""
    folders = {path.parent for path in python_files("tests")}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_folder_with_code_is_looked_at() -> None:
    found = {path.parent.name for path in ROOT.glob("*/*.py")} - {"node_modules", "migrations"}
    assert found <= {*PACKAGES}
