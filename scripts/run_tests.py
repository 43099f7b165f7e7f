"""`make test`, `check`, `coverage` and `lint`: the gates, then pytest on a private PostgreSQL and Redis."""

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import django
import psycopg

from scripts.stack import StackError, stack_down, stack_up
from scripts.stack.places import read_env_file

ROOT = Path(__file__).resolve().parent.parent
_TYPED = (
    "server",
    "workers",
    "demo",
    "scripts",
    "tests",
    "agents/tidemark_agent",
    "client/tidemark",
    "bench",
    "manage.py",
)
_FORMATTED = ("server", "workers", "demo", "scripts", "tests", "agents", "client", "bench", "manage.py")


def gates() -> dict[str, list[str]]:
    """Command by name, in the order in which they run: the quickest first."""
    python = sys.executable
    tools = Path(python).parent
    return {
        "format": [str(tools / "ruff"), "format", "--check", "--quiet", *_existing(_FORMATTED)],
        "lint": [str(tools / "ruff"), "check", "--quiet", *_existing(_FORMATTED)],
        "templates": [str(tools / "djlint"), "--check", "--lint", "templates"],
        "contracts": [str(tools / "lint-imports"), "--no-cache"],
        "migrations": [python, "manage.py", "makemigrations", "--check", "--dry-run"],
        "types": [str(tools / "mypy"), *_existing(_TYPED)],
    }


def run_gates(env_file: str, say: Callable[[str], None]) -> bool:
    """Run all of them, whatever fails; what a failing one said is told, too."""
    environment = environ(env_file, PYTHONPATH=os.pathsep.join(map(str, (ROOT, ROOT / "agents", ROOT / "client"))))
    ok = True
    for name, command in gates().items():
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        failed = done.returncode != 0
        ok = ok and not failed
        say(f"{name:<10} {'FAILED' if failed else 'ok':<7} {time.monotonic() - started:5.1f} s")
        if failed:
            say(done.stdout + done.stderr)
    return ok


class GatesBeside(threading.Thread):
    """The gates while tests run: they fill what the tests spend waiting. What they said is told at the end."""

    def __init__(self, env_file: str) -> None:
        super().__init__(name="gates", daemon=True)
        self._env_file = env_file
        self.ok = False
        self.seconds = 0.0
        self.said: list[str] = []

    def run(self) -> None:
        started = time.monotonic()
        self.ok = run_gates(self._env_file, self.said.append)
        self.seconds = time.monotonic() - started


def _existing(names: tuple[str, ...]) -> list[str]:
    """Those that hold Python files; a tool stops at a directory that holds none."""
    return [name for name in names if (ROOT / name).is_file() or any((ROOT / name).rglob("*.py"))]


# `make test`, `check`, `coverage` and `lint`: the gates, then pytest on a private PostgreSQL and Redis of its own.
#
# After --fast, --coverage or --gates-only, arguments are pytest's. With any, the gates are left out: somebody is
# looking at single tests.

LOCAL = ROOT / ".local" / "test"
_NOTHING_COLLECTED = 5
_INTERRUPTED = 2
# Of a whole run the terminal tells what failed and where; what failing tests logged, often megabytes, is in the report.
_LOGS_APART = ("--show-capture=no", "-o", "junit_logging=all", "-o", "junit_log_passing_tests=false")
_OPTIONS = ("--fast", "--coverage", "--gates-only")
_SLOWEST_FILES = 12


@dataclass(frozen=True)
class Phase:
    """Some of the tests. `real` ones share kernels and services within a file."""

    name: str
    arguments: tuple[str, ...]


PHASES = (
    # Neighbours share what their module made, and whoever is done first takes over from the other's end. Tests wait for
    # programs and for PostgreSQL a third of their time: there are two processes more than CI has processors.
    Phase("fast", ("-m", "not real", "-n", "4", "--dist", "worksteal")),
    # The longest files first, see tests/conftest.py. Two of three compile or emulate, the third may wait meanwhile.
    Phase("real", ("-m", "real", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")),
)


def main(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    chosen = arguments[1:] if first in _OPTIONS else arguments
    started = time.monotonic()
    try:
        with _own_servers() as env_file:
            if first == "--gates-only":
                return 0 if run_gates(env_file, partial(print, flush=True)) else 1
            times = Times()
            gates = GatesBeside(env_file)
            if not chosen:
                gates.start()
            with nullcontext() if chosen else _compiling(env_file):
                template = migrated_template(env_file)
            times["set up"] = time.monotonic() - started
            phases = PHASES[:1] if first == "--fast" else PHASES
            codes = [_run(phase, env_file, template, chosen, times, coverage=first == "--coverage") for phase in phases]
            if not chosen:
                gates.join()
                times["gates"] = gates.seconds
                print("\n", *gates.said, sep="\n")
    except StackError as error:
        print(f"tests: {error}", file=sys.stderr)
        return 1
    times["all"] = time.monotonic() - started
    return _tell(phases, codes, times, gates_ok=bool(chosen) or gates.ok, chosen=bool(chosen))


class Times(dict[str, float]):
    """Seconds of what a run consists of, by name."""

    def __str__(self) -> str:
        return "seconds: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.items())


def environ(env_file: str, **more: str) -> dict[str, str]:
    """What every process of a run gets. Where no byte code may lie beside the sources it is kept apart from them.

    Each of some thousand processes would compile all of its modules anew, pytest's assertions in tests first of all.
    """
    found = {**os.environ, "TIDEMARK_ENV_FILE": env_file, **more}
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found.setdefault("PYTHONPYCACHEPREFIX", str(LOCAL / "bytecode"))
    return found


@contextmanager
def _compiling(env_file: str) -> Iterator[None]:
    """Meanwhile one process reads all tests, and keeps their byte code: else each process of a phase makes its own.

    What is wrong with them the phases tell.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
    environment = environ(env_file, TIDEMARK_PROCESS="tests")
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


@contextmanager
def _own_servers() -> Iterator[str]:
    """PostgreSQL and Redis for the tests, ended afterwards; the operator's own where the environment names them."""
    LOCAL.mkdir(parents=True, exist_ok=True)
    with (LOCAL / "tests.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError("other tests of this checkout are running; their databases have the same names") from None
        try:
            yield stack_up(ROOT, local=LOCAL, services=False, durable=False).env_file
        finally:
            stack_down(ROOT, local=LOCAL)


_TEMPLATE = "tidemark_tests_"


def migrated_template(env_file: str) -> str:
    """The database that those of the tests are copied from. It is kept until a migration changes."""
    name = _TEMPLATE + _fingerprint()
    known = read_env_file(Path(env_file))
    address = known.get("TIDEMARK_DATABASE_URL") or os.environ.get("TIDEMARK_DATABASE_URL", "")
    with psycopg.connect(_of_database(address, "postgres"), autocommit=True) as server:
        query = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
        there = {str(row[0]) for row in server.execute(query, [_TEMPLATE])}
        if name in there:
            return name
        for old in (*there, f"{_TEMPLATE}new"):
            server.execute(f'DROP DATABASE IF EXISTS "{old}"'.encode())
        server.execute(f'CREATE DATABASE "{_TEMPLATE}new"'.encode())
        new = environ(env_file, TIDEMARK_DATABASE_URL=_of_database(address, f"{_TEMPLATE}new"))
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        done = subprocess.run(command, cwd=ROOT, env=new, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"the tests' database cannot be migrated:\n{done.stdout}{done.stderr}")
        # With the name it is known to be whole.
        server.execute(f'ALTER DATABASE "{_TEMPLATE}new" RENAME TO "{name}"'.encode())
    return name


def _of_database(address: str, name: str) -> str:
    head, mark, query = address.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{mark}{query}"


def _fingerprint() -> str:
    """Changes with any migration of ours and with Django's own."""
    total = hashlib.sha256(django.get_version().encode())
    for path in sorted((ROOT / "migrations").rglob("*.py")):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def _run(phase: Phase, env_file: str, template: str, chosen: list[str], times: Times, *, coverage: bool) -> int:
    command = [sys.executable, "-m", "pytest", *phase.arguments, f"--junitxml={_report(phase)}"]
    command += [] if chosen else _LOGS_APART
    if coverage:
        first = phase is PHASES[0]
        command += ["--cov", "--cov-report=" if first else "--cov-report=term:skip-covered"]
        command += [] if first else ["--cov-append"]
    _report(phase).unlink(missing_ok=True)
    print(f"\n{phase.name} tests", flush=True)
    environment = environ(env_file, TIDEMARK_PROCESS="tests", TIDEMARK_TEST_TEMPLATE=template)
    started = time.monotonic()
    code = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, check=False).returncode
    seconds = time.monotonic() - started
    collect = _collect_seconds(phase)
    times[f"collect {phase.name}"], times[phase.name] = collect, seconds - collect
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code


def _tell(phases: tuple[Phase, ...], codes: list[int], times: Times, *, gates_ok: bool, chosen: bool) -> int:
    if not chosen:
        for phase in phases:
            print(f"\nslowest files of {phase.name}: {_slowest(phase)}")
    if not gates_ok:
        print("A gate FAILED; see above.")
    print(times)
    print(_total(phases, codes))
    if not chosen and not _all_passed(codes):
        print(f"What the failing tests logged: {', '.join(str(_report(phase).relative_to(ROOT)) for phase in phases)}")
    return 0 if gates_ok and _all_passed(codes) else 1


def _all_passed(codes: list[int]) -> bool:
    """A phase that has no test is well, unless no other has one either."""
    return all(code in {0, _NOTHING_COLLECTED} for code in codes) and 0 in codes


def _suites(phase: Phase) -> list[ET.Element]:
    if not _report(phase).exists():
        return []
    return list(ET.parse(_report(phase)).iter("testsuite"))  # noqa: S314 (pytest wrote it a moment ago)


def _collect_seconds(phase: Phase) -> float:
    """From the start of pytest's session until the last process knew its tests, as tests/conftest.py tells."""
    told = [found for suite in _suites(phase) for found in suite.iter("property") if found.get("name") == "collect"]
    return sum(float(found.get("value", "0")) for found in told)


def _slowest(phase: Phase) -> str:
    seconds: Counter[str] = Counter()
    for suite in _suites(phase):
        for case in suite.iter("testcase"):
            seconds[case.get("classname", "").removeprefix("tests.")] += float(case.get("time", "0"))  # type: ignore[assignment]
    return ", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.most_common(_SLOWEST_FILES))


def _total(phases: tuple[Phase, ...], codes: list[int]) -> str:
    """One line about all phases that ran, in the words of pytest's own."""
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    seconds = 0.0
    for phase in phases:
        for suite in _suites(phase):
            seconds += float(suite.get("time", "0"))
            for name in counts:
                counts[name] += int(suite.get(name, "0"))
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    words = [
        f"{passed} passed",
        *(f"{counts[name]} {name}" for name in ("failures", "errors", "skipped") if counts[name]),
    ]
    verdict = "" if _all_passed(codes) else "FAILED: "
    return f"{' ' + verdict + ', '.join(words) + f' in {seconds:.0f} s (all phases) ':=^100}"


def _report(phase: Phase) -> Path:
    return LOCAL / f"{phase.name}.xml"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
