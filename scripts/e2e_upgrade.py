"""`python -m scripts.e2e_upgrade [TAG]`: a database of an earlier version becomes one of this checkout, under load.

The earlier version is read from git (by default the last tag), makes its database, fills it, and goes on reading and
writing while this version's migrations run. Then every row must be there, the service must find its database right, and
`recompute --check` must find no difference.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from scripts.stack import stack_remove, stack_up
from scripts.stack.places import Places, read_env_file

ROOT = Path(__file__).resolve().parent.parent
# What the earlier version puts into its database: everything in every state.
_FILL = "import django; django.setup(); from tests.scenarios import busy_site; busy_site()"
# Of one statement beside the migrations: as long as a page may take.
_LONGEST = 15.0
_COUNT = """
SELECT c.relname, (xpath('/row/c/text()', query_to_xml(format('SELECT count(*) AS c FROM %I', c.relname),
    false, true, '')))[1]::text::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relname NOT IN ('django_migrations', 'core_tries', 'django_content_type', 'auth_permission')
"""


_WRITE = """
INSERT INTO core_tries (key, count, since) VALUES ('upgrade', 1, now())
ON CONFLICT (key) DO UPDATE SET count = core_tries.count + 1
"""
_STATEMENTS = (
    _WRITE,
    "SELECT count(*) FROM sources_series WHERE state = 'ready'",
    "UPDATE sources_series SET reason = reason WHERE id = (SELECT min(id) FROM sources_series)",
)


class _Load:
    """Somebody who reads and writes as the service does, and how long the slowest statement took."""

    def __init__(self, conninfo: str) -> None:
        self.statements, self.slowest, self.error = 0, 0.0, ""
        self._conninfo, self._stop = conninfo, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                while not self._stop.is_set():
                    for statement in _STATEMENTS:
                        began = time.monotonic()
                        connection.execute(statement)
                        self.slowest = max(self.slowest, time.monotonic() - began)
                        self.statements += 1
        except psycopg.Error as error:
            self.error = str(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.e2e_upgrade", description=__doc__)
    parser.add_argument("tag", nargs="?", default="", help="a tag or any other name of a commit")
    tag = parser.parse_args().tag or _git("describe", "--tags", "--abbrev=0")
    folder = Path(tempfile.mkdtemp(prefix="upgrade-", dir=os.environ.get("TIDEMARK_E2E_FOLDER")))
    old, local = folder / "old", folder / "local"
    stack_up(ROOT, services=False, durable=False, local=local, environ=_plain())
    try:
        _git("worktree", "add", "--detach", "--quiet", str(old), tag)
        return _upgrade(tag, old, Places(ROOT, local))
    finally:
        stack_remove(ROOT, local=local)
        subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _upgrade(tag: str, old: Path, places: Places) -> int:
    values = read_env_file(places.env_file)
    environment = {
        **_plain(),
        **values,
        "TIDEMARK_ENV_FILE": str(places.env_file),
        "DJANGO_SETTINGS_MODULE": "server.settings",
        # What it is filled with was measured on virtual machines.
        "TIDEMARK_VIRTUAL_VERDICTS": "1",
    }
    conninfo = values["TIDEMARK_DATABASE_URL"].replace("postgres://", "postgresql://", 1)

    def run(where: Path, *words: str) -> str:
        of_it = {"PYTHONPATH": f"{where}:{where / 'agents'}"}
        done = subprocess.run(
            [sys.executable, *words], cwd=where, env=environment | of_it, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} in {where.name} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    _step(f"the database of {tag}", lambda: run(old, "manage.py", "migrate", "--verbosity", "0"))
    _step("its rows", lambda: run(old, "-c", _FILL))
    before = _counts(conninfo)
    load = _Load(conninfo)
    try:
        _step("this version's migrations, under load", lambda: run(ROOT, "manage.py", "migrate", "--verbosity", "1"))
    finally:
        load.end()
    after = _counts(conninfo)
    lost = {name: (count, after.get(name)) for name, count in before.items() if after.get(name) != count}
    print(f"  {sum(before.values())} rows in {len(before)} tables, {len(lost)} tables with other numbers now")
    print(f"  {load.statements} statements beside it, the slowest took {load.slowest:.2f} s {load.error}")
    _step("no migration is missing", lambda: run(ROOT, "manage.py", "migrate", "--check"))
    _step("recompute --check", lambda: run(ROOT, "manage.py", "recompute", "--check"))
    if lost or load.error or load.slowest > _LONGEST or not load.statements:
        print(f"FAILED: {lost or load.error or 'too slow'}")
        return 1
    print(f"{tag} becomes this version")
    return 0


def _step(what: str, run: Callable[[], str]) -> None:
    began = time.monotonic()
    run()
    print(f"  {what}: {time.monotonic() - began:.1f} s", flush=True)


def _counts(conninfo: str) -> dict[str, int]:
    with psycopg.connect(conninfo) as connection:
        return {str(name): int(count) for name, count in connection.execute(_COUNT).fetchall()}


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
