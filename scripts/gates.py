"""The checks that run nothing of the service: format, lint, types, contracts, templates, migrations."""

import os
import subprocess
import sys
import time
from pathlib import Path

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
