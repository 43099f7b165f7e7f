"""`make test`, `check`, `coverage` and `lint`: the gates, then pytest on a private PostgreSQL and Redis."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from scripts.stack import StackError, stack_down, stack_up

ROOT = Path(__file__).resolve().parent.parent
_TYPED = ("server", "workers", "demo", "scripts", "tests", "agents/tidemark_agent", "bench", "manage.py")
_FORMATTED = ("server", "workers", "demo", "scripts", "tests", "agents", "bench", "manage.py")


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


def run_gates(env_file: str) -> bool:
    """Run all of them, whatever fails; what a failing one said is printed."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'agents'}"
    environment = {**os.environ, "TIDEMARK_ENV_FILE": env_file, "PYTHONPATH": path}
    ok = True
    for name, command in gates().items():
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        failed = done.returncode != 0
        ok = ok and not failed
        print(f"{name:<10} {'FAILED' if failed else 'ok':<7} {time.monotonic() - started:5.1f} s", flush=True)
        if failed:
            print(done.stdout + done.stderr, flush=True)
    return ok


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


@dataclass(frozen=True)
class Phase:
    """Some of the tests. `real` ones share kernels and services within a file, and wait more than they compute."""

    name: str
    arguments: tuple[str, ...]


PHASES = (
    Phase("fast", ("-m", "not real", "-n", "2")),
    Phase("real", ("-m", "real", "-n", "2", "--dist", "loadfile")),
)


def main(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    chosen = arguments[1:] if first in _OPTIONS else arguments
    try:
        with _own_servers() as env_file:
            gates_ok = bool(chosen) or run_gates(env_file)
            if first == "--gates-only":
                return 0 if gates_ok else 1
            phases = PHASES[:1] if first == "--fast" else PHASES
            codes = [_run(phase, env_file, chosen, coverage=first == "--coverage") for phase in phases]
    except StackError as error:
        print(f"tests: {error}", file=sys.stderr)
        return 1
    if not gates_ok:
        print("A gate FAILED; see above.")
    print(_total(phases, codes))
    if not chosen and not _all_passed(codes):
        print(f"What the failing tests logged: {', '.join(str(_report(phase).relative_to(ROOT)) for phase in phases)}")
    return 0 if gates_ok and _all_passed(codes) else 1


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


def _run(phase: Phase, env_file: str, chosen: list[str], *, coverage: bool) -> int:
    command = [sys.executable, "-m", "pytest", *phase.arguments, f"--junitxml={_report(phase)}"]
    command += [] if chosen else _LOGS_APART
    if coverage:
        first = phase is PHASES[0]
        command += ["--cov", "--cov-report=" if first else "--cov-report=term:skip-covered"]
        command += [] if first else ["--cov-append"]
    _report(phase).unlink(missing_ok=True)
    print(f"\n{phase.name} tests", flush=True)
    environment = {**os.environ, "TIDEMARK_ENV_FILE": env_file, "TIDEMARK_PROCESS": "tests"}
    started = time.monotonic()
    code = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, check=False).returncode
    print(f"{phase.name} tests: {time.monotonic() - started:.0f} s", flush=True)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code


def _all_passed(codes: list[int]) -> bool:
    """A phase that has no test is well, unless no other has one either."""
    return all(code in {0, _NOTHING_COLLECTED} for code in codes) and 0 in codes


def _total(phases: tuple[Phase, ...], codes: list[int]) -> str:
    """One line about all phases that ran, in the words of pytest's own."""
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    seconds = 0.0
    for phase in phases:
        if not _report(phase).exists():
            continue
        for suite in ET.parse(_report(phase)).iter("testsuite"):  # noqa: S314 (pytest wrote it a moment ago)
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
