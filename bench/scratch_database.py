"""A database of its own for a bench, gone afterwards; nothing that is stored there asks a worker for anything.

python -m bench.scratch_database MODULE ARGUMENTS: calls main(ARGUMENTS) of a module that needs such a database, with
servers of the bench where the environment names none.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import django
from django.db import connection

from bench.kit import ROOT
from scripts.stack import stack_down, stack_up

_ENV_FILE = "TIDEMARK_ENV_FILE"


@contextmanager
def servers() -> Iterator[Mapping[str, str]]:
    """Environment of a process that needs PostgreSQL: servers of the bench, or those of the file that is named."""
    if _ENV_FILE in os.environ:
        yield dict(os.environ)
        return
    local = ROOT / ".local" / "bench"
    local.mkdir(parents=True, exist_ok=True)
    try:
        yield {**os.environ, _ENV_FILE: stack_up(ROOT, local=local, services=False, durable=False).env_file}
    finally:
        stack_down(ROOT, local=local)


@contextmanager
def scratch_database() -> Iterator[None]:
    """Django is set up on a new database with all migrations."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    django.setup()
    # Nothing of ours can be imported before.
    tasks: Any = importlib.import_module("server.core.tasks")
    tasks.send = lambda _name, _arguments: None
    connection.settings_dict["TEST"]["NAME"] = f"tidemark_bench_{os.getpid()}"
    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    if _ENV_FILE not in os.environ:
        with servers() as environment:
            again = [sys.executable, "-m", "bench.scratch_database", *sys.argv[1:]]
            sys.exit(subprocess.run(again, cwd=ROOT, env=environment, check=False).returncode)
    with scratch_database():
        importlib.import_module(sys.argv[1]).main(*sys.argv[2:])
