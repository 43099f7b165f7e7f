"""A module is a chapter: one subject that is read at once, in a folder that is taken in at a glance."""

import ast
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house.sources import PACKAGES, ROOT, line_count, name_of, python_files

LONGEST_FILE = 500
LONGEST_FUNCTION = 60
LONGEST_OF_NINE_IN_TEN = 30
MOST_IN_A_FOLDER = 15
SHORTEST_WITH_ONE_READER = 50
MOST_OF_A_NAME = 2
OURS = tuple(package for package in PACKAGES if package != "tests")
# Django looks for these by their names, and runs one `Command` of each module of commands.
OF_DJANGO = {"admin.py", "apps.py", "models.py", "urls.py"}
COMMANDS = "management/commands"
# What a room does by itself, and what it does when a trial that it asked for is over.
SAME_EVERYWHERE = {"sweep.py", "on_trial_over.py"}
# Started by its path or name, in a process of its own: it cannot stand in the module that names it.
PROGRAMS = {"bench/mail/b4.py", "bench/mail/import_run.py"}
# Loaded by their names, as a site chooses.
ADAPTERS = "server/lab/dispatch"


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    long = {name_of(path): line_count(path) for path in python_files() if line_count(path) > LONGEST_FILE}
    assert long == {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    assert {name: lines for name, lines in _lengths() if lines > LONGEST_FUNCTION} == {}


def test_nine_functions_in_ten_have_thirty_lines_or_less() -> None:
    lengths = sorted(lines for _, lines in _lengths())
    assert lengths[len(lengths) * 9 // 10] <= LONGEST_OF_NINE_IN_TEN


def test_a_folder_holds_fifteen_modules_at_most() -> None:
    counts = Counter(name_of(path.parent) for path in _modules(*OURS))
    assert {folder: count for folder, count in counts.items() if count > MOST_IN_A_FOLDER} == {}


def test_a_short_module_has_two_readers() -> None:
    """What a single neighbour reads stands there; Django's own modules and those that are loaded by name aside."""
    readers = _readers()
    short = {
        name_of(path): readers[_dotted(path)]
        for path in _modules("server", "agents/tidemark_agent", "demo", "scripts", "bench")
        if line_count(path) < SHORTEST_WITH_ONE_READER and path.name not in OF_DJANGO
    }
    alone = {name: found for name, found in short.items() if len(found) == 1 and name not in PROGRAMS}
    assert {name: found for name, found in alone.items() if name.rpartition("/")[0] != ADAPTERS} == {}


def test_a_file_name_stands_twice_at_most() -> None:
    places = defaultdict(list)
    for path in _modules("server"):
        places[path.name].append(name_of(path))
    often = {name: found for name, found in places.items() if len(found) > MOST_OF_A_NAME}
    assert {name: found for name, found in often.items() if name not in OF_DJANGO | SAME_EVERYWHERE} == {}


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path in _modules("server"):
        for name in _facts(path).classes:
            places[name].append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_function_says_what_it_takes_and_gives() -> None:
    bare = [f"{name_of(path)}:{one.name}" for path in python_files() for one in _facts(path).functions if one.is_bare]
    assert bare == []


def _modules(*folders: str) -> list[Path]:
    """Those that a reader looks for by subject: neither the words about a package nor commands of Django."""
    return [
        path
        for path in python_files(*folders)
        if path.name not in {"__init__.py", "__main__.py"} and COMMANDS not in name_of(path)
    ]


def _dotted(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removeprefix("agents.").removesuffix(".__init__")


def _readers() -> dict[str, set[str]]:
    """By the dotted name of a module, the files outside the tests that import it, or name it as settings do."""
    known = {_dotted(path) for path in python_files(*OURS)}
    found: dict[str, set[str]] = {name: set() for name in known}
    for path in python_files(*OURS):
        for name in _facts(path).named & known:
            found[name].add(name_of(path))
    return found


def _named(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value, node.value.rpartition(".")[0]}
    return set()


def _lengths() -> list[tuple[str, int]]:
    """Lines of every function."""
    return [(f"{name_of(path)}:{one.name}", one.lines) for path in python_files() for one in _facts(path).functions]


@dataclass(frozen=True)
class Function:
    name: str
    lines: int
    is_bare: bool


@dataclass(frozen=True)
class Facts:
    """What the rules ask of one file: its functions, its own public classes, and names that stand in it."""

    functions: tuple[Function, ...]
    classes: tuple[str, ...]
    named: frozenset[str]


@cache
def _facts(path: Path) -> Facts:
    """Read once for all rules, for to parse every file takes seconds; the trees themselves would fill the memory."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions, named = [], set[str]()
    for node in ast.walk(tree):
        named |= _named(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            functions.append(Function(node.name, lines, _is_bare(node)))
    classes = (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return Facts(tuple(functions), tuple(classes), frozenset(named))


def _is_bare(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return function.returns is None or any(
        argument.annotation is None and argument.arg not in {"self", "cls"} for argument in arguments
    )
