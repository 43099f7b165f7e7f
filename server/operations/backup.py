"""A backup of the site in one folder, and a site made of one.

What is truth: the database as it was at one moment, and the files that its rows name in the store of artifacts: of
builds, and of the archive. Mirrors and archives of lists
are fetched again; what is only in files of the host (keys, tokens, settings) stays there.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg.sql import SQL, Literal

from server.builds.models import Artifact
from server.builds.storage import artifact_store, open_artifact, put_artifact
from server.core import clock
from server.core.database import connect_apart
from server.core.errors import DomainError
from server.results.models import ArchivePart

log = structlog.get_logger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
NOT_IN_IT = (
    "settings, the secret key, passwords and tokens in files, private keys of DKIM and TLS: keep copies of them apart",
    "logins of people: everybody signs in again",
    "mirror.git and archives of lists: they are fetched again",
    "Redis: rows are the truth, and sweeps wake their work up",
)
_DATABASE, _ARTIFACTS = "database", "artifacts"
_CHUNK = 1024 * 1024
_COUNT = 'SELECT count(*) FROM "{}"'
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Of what PostgreSQL's programs say of themselves, and how its server tells the same.
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_MAJOR = 10_000
# Whose rows any migrated database has.
_ALWAYS_THERE = frozenset({"django_migrations", "django_content_type", "auth_permission", "sources_measurerule"})
_SESSIONS = "django_session"


@dataclass(frozen=True)
class Saved:
    """What a backup came to; `missing` are artifacts that the rows name and the store has not."""

    tables: Mapping[str, int]
    artifacts: int
    size: int
    missing: tuple[str, ...]


def back_up(folder: Path) -> Saved:
    """Write a backup into `folder`, which must be empty. Others may go on writing: it is the state of one moment.

    It is whole when its manifest is there, which is written last.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DomainError("folder-not-empty", f"{folder} is not empty: a backup wants a folder of its own")
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with connect_apart() as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            snapshot = _one(holder, "SELECT pg_export_snapshot()")
            tables = {name: int(_one(holder, _COUNT.format(name))) for name in _tables(holder)}
            artifacts = [row[0] for row in holder.execute(_NAMED_ARTIFACTS).fetchall()]
            migrations = [list(row) for row in holder.execute("SELECT app, name FROM django_migrations").fetchall()]
            server = holder.info.server_version
            _check_age(server // _MAJOR)
            dump = ("--format=directory", f"--snapshot={snapshot}", "--no-owner", "--no-privileges")
            _run("pg_dump", *dump, f"--exclude-table-data={_SESSIONS}", f"--file={folder / _DATABASE}")
            holder.rollback()
        missing = tuple(name for name in artifacts if not _save_artifact(name, folder / _ARTIFACTS))
        files = {path.relative_to(folder).as_posix(): _described(path) for path in _files(folder)}
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "version": settings.VERSION,
            "made_at": clock.now().isoformat(),
            "postgresql": server,
            "migrations": migrations,
            "tables": {name: count for name, count in tables.items() if name != _SESSIONS},
            "artifacts_missing": missing,
            "not_in_it": NOT_IN_IT,
            "files": files,
        }
        partial = folder / f"{MANIFEST}.partial"
        partial.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        partial.replace(folder / MANIFEST)
    finally:
        os.umask(before)
    size = sum(int(file["size"]) for file in files.values())
    log.info("backed_up", folder=str(folder), size=size, artifacts=len(artifacts) - len(missing))
    return Saved(manifest["tables"], len(artifacts) - len(missing), size, missing)


def restore(folder: Path, *, replace: bool = False) -> Saved:
    """Make this site the one of the backup. Nothing is touched before all of it is found whole, and fit for this
    version; a site that holds anything stays as it is, unless it is to be replaced. The database changes in one
    transaction, which counts the rows at its end.
    """
    manifest = read_manifest(folder)
    _check_files(folder, manifest["files"])
    if not replace and (held := rows_held()):
        raise DomainError("site-not-empty", f"this site holds rows ({', '.join(held[:5])}): restore into an empty one")
    connection.close()
    _load(folder / _DATABASE, manifest["tables"])
    try:
        artifacts = _restore_artifacts(folder / _ARTIFACTS)
    except (DomainError, OSError) as error:
        raise DomainError(
            "artifacts-not-restored",
            "the database is that of the backup by now, and not all of its artifacts are in the store: "
            f"{error}. Mend that and restore once more, with --replace, before anything is started",
        ) from error
    size = sum(int(file["size"]) for file in manifest["files"].values())
    log.info("restored", folder=str(folder), version=manifest["version"], artifacts=artifacts)
    return Saved(manifest["tables"], artifacts, size, tuple(manifest["artifacts_missing"]))


def read_manifest(folder: Path) -> dict[str, Any]:
    """That of a backup which this version can read."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DomainError("no-backup", f"{folder} holds no whole backup: {error}") from error
    if manifest.get("format") != FORMAT:
        raise DomainError(
            "unknown-format", f"{folder} is a backup in the format {manifest.get('format')}, not {FORMAT}"
        )
    known = MigrationLoader(None).disk_migrations
    strange = [f"{app}.{name}" for app, name in manifest["migrations"] if (app, name) not in known]
    if strange:
        raise DomainError(
            "newer-version",
            f"the backup is of version {manifest['version']}, whose migrations this one lacks: {', '.join(strange)}",
        )
    return manifest


def rows_held() -> list[str]:
    """Tables of this site that hold anything that people or work brought."""
    there = set(connection.introspection.table_names())
    ours = sorted(
        {model._meta.db_table for model in apps.get_models(include_auto_created=True)} & there - _ALWAYS_THERE
    )
    with connection.cursor() as cursor:
        found = []
        for name in ours:
            cursor.execute(f'SELECT EXISTS (SELECT FROM "{name}")')  # noqa: S608 (a name of ours)
            if cursor.fetchone()[0]:
                found.append(name)
    return found


_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname
"""
_NAMED_ARTIFACTS = f"""
SELECT sha256 FROM {Artifact._meta.db_table} WHERE removed_at IS NULL
UNION SELECT sha256 FROM {ArchivePart._meta.db_table} UNION SELECT manifest FROM {ArchivePart._meta.db_table}
ORDER BY 1
"""  # noqa: S608 (names of ours)


def _tables(holder: Any) -> list[str]:
    return [row[0] for row in holder.execute(_TABLES).fetchall()]


def _one(holder: Any, statement: str) -> Any:
    row = holder.execute(statement).fetchone()
    assert row is not None
    return row[0]


def _save_artifact(sha256: str, folder: Path) -> bool:
    if artifact_store().find(sha256) is None:
        return False
    target = folder / sha256[:2] / sha256[2:]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("wb") as out:
            for chunk in open_artifact(sha256).chunks:
                out.write(chunk)
    except DomainError as error:
        target.unlink(missing_ok=True)
        if error.code not in {"not-found", "damaged"}:
            # A store that is away for a moment has lost nothing: without its files this is no backup.
            raise
        return False
    return True


def _restore_artifacts(folder: Path) -> int:
    count = 0
    for path in _files(folder):
        sha256 = f"{path.parent.name}{path.name}"
        if artifact_store().find(sha256) is None:
            put_artifact(sha256, _pieces(path))
        count += 1
    return count


def _check_files(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> None:
    """DomainError `damaged` where a file is not there, is another one, or stands under a name that it has not."""
    for name, expected in told.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise DomainError("damaged", f"{name} of the backup is not there")
        found = _described(path)
        named = f"{path.parent.name}{path.name}" if name.startswith(f"{_ARTIFACTS}/") else found["sha256"]
        if found != expected or not _SHA256.fullmatch(named) or named != found["sha256"]:
            raise DomainError("damaged", f"{name} of the backup is not the file that was written")


def _described(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return {"sha256": digest.hexdigest(), "size": path.stat().st_size}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def _place() -> dict[str, str]:
    """Where the database is, as PostgreSQL's own programs read it: a password is on no command line."""
    given = connection.get_connection_params()
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    # Whoever checks the server's certificate does so here as well.
    names |= {name: f"PG{name.upper()}" for name in ("sslmode", "sslrootcert", "sslcert", "sslkey")}
    return {name: str(given[key]) for key, name in names.items() if given.get(key)}


# pg_restore cannot clean away tables that are cut into parts.
_CLEAN = b"""
BEGIN;
SET LOCAL client_min_messages = warning;
DO $$
DECLARE what text;
BEGIN
    FOR what IN SELECT format('TABLE %I', c.relname) FROM pg_class c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    LOOP
        EXECUTE 'DROP ' || what || ' CASCADE';
    END LOOP;
    FOR what IN SELECT format('FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE 'DROP ' || what || ' CASCADE';
    END LOOP;
END $$;
"""


# The dump leaves no search path behind.
_CHECK_AND_COMMIT = """
RESET search_path;
DO $check$
DECLARE told record; counted bigint;
BEGIN
    FOR told IN SELECT key, value FROM json_each_text({}) LOOP
        EXECUTE format('SELECT count(*) FROM %I', told.key) INTO counted;
        IF counted <> told.value::bigint THEN
            RAISE EXCEPTION 'table % would hold % rows, and the backup names %', told.key, counted, told.value;
        END IF;
    END LOOP;
END $check$;
COMMIT;
"""


def _load(dump: Path, tables: Mapping[str, int]) -> None:
    """All of it or nothing: the transaction is ended well only when pg_restore has told everything, and as many rows
    are there as the backup names.
    """
    check = SQL(_CHECK_AND_COMMIT).format(Literal(json.dumps(tables))).as_string(None)
    words = (_found("psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null")
    told = (_found("pg_restore"), "--no-owner", "--no-privileges", "--file=-", str(dump))
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(words, stdin=subprocess.PIPE, stderr=said, env={**os.environ, **_place()}) as into,
        subprocess.Popen(told, stdout=subprocess.PIPE, stderr=said) as source,
    ):
        assert into.stdin is not None
        assert source.stdout is not None
        with suppress(BrokenPipeError):
            into.stdin.write(_CLEAN)
            shutil.copyfileobj(source.stdout, into.stdin)
            source.stdout.close()
            if source.wait() == 0:
                into.stdin.write(check.encode())
            into.stdin.close()
        source.stdout.close()
        if source.wait() or into.wait():
            said.seek(0)
            told_by = said.read().decode()[-2000:].strip()
            raise DomainError("program-failed", f"the dump cannot be loaded, and nothing was changed: {told_by}")


def _check_age(server: int) -> None:
    """DomainError `program-too-old` where this host's pg_dump cannot read a server of this major version."""
    done = subprocess.run([_found("pg_dump"), "--version"], capture_output=True, text=True, check=False)
    own = _VERSION.search(done.stdout)
    if own is not None and int(own[1]) < server:
        raise DomainError(
            "program-too-old",
            f"pg_dump here is of PostgreSQL {own[1]}, which cannot read the server's {server}: install "
            f"postgresql-client-{server} or newer, or run this where it is",
        )


def _found(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise DomainError("no-program", f"{program} is not there: install postgresql-client")
    return found


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [_found(program), *arguments], env={**os.environ, **_place()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DomainError("program-failed", f"{program} failed: {done.stderr.strip()[-2000:]}")
