"""Backups: one moment of a site that others write to, and what is refused before anything is touched."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from server.builds.models import Artifact
from server.builds.storage import ArtifactStream, artifact_store, put_artifact
from server.core.errors import DomainError
from server.operations import backup
from server.operations.backup import MANIFEST, back_up, restore, rows_held
from server.sources.models import Tree
from tests.builders import build_build

KERNEL = b"a kernel"
SHA256 = hashlib.sha256(KERNEL).hexdigest()

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site() -> None:
    put_artifact(SHA256, [KERNEL])
    image = Artifact.Kind.IMAGE
    Artifact.objects.update_or_create(
        build=build_build(), kind=image, defaults={"sha256": SHA256, "size": len(KERNEL), "removed_at": None}
    )


@pytest.fixture
def writer() -> Iterator[None]:
    """Somebody who writes two rows at once, again and again."""
    stop = Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            with transaction.atomic():
                Tree.objects.create(name=f"a-{number}")
                Tree.objects.create(name=f"b-{number}")
            number += 1
        connection.close()

    thread = Thread(target=write)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("site", "writer")
def test_a_backup_under_writes_is_one_moment(tmp_path: Path) -> None:
    saved = back_up(tmp_path / "backup")
    others = Tree.objects.exclude(name__regex="^[ab]-").count()
    # Both of each pair, or none.
    assert (saved.tables["sources_tree"] - others) % 2 == 0
    manifest = json.loads((tmp_path / "backup" / MANIFEST).read_text(encoding="utf-8"))
    assert stat.S_IMODE((tmp_path / "backup" / MANIFEST).stat().st_mode) & 0o077 == 0
    assert "django_session" not in manifest["tables"]
    assert any("secret" in line for line in manifest["not_in_it"])


@pytest.mark.usefixtures("site")
def test_what_is_restored_is_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    saved = back_up(folder)
    assert (saved.artifacts, saved.missing) == (1, ())
    Tree.objects.create(name="later")
    artifact_store().remove(SHA256)
    with pytest.raises(DomainError) as refused:
        restore(folder)
    assert refused.value.code == "site-not-empty"
    assert Tree.objects.filter(name="later").exists()
    restored = restore(folder, replace=True)
    assert restored.tables == saved.tables
    assert not Tree.objects.filter(name="later").exists()
    assert artifact_store().find(SHA256) is not None
    call_command("recompute", "--check")


@pytest.mark.usefixtures("site")
def test_a_damaged_backup_touches_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    back_up(folder)
    (folder / "artifacts" / SHA256[:2] / SHA256[2:]).write_bytes(b"another")
    Tree.objects.create(name="later")
    with pytest.raises(DomainError) as refused:
        restore(folder, replace=True)
    assert refused.value.code == "damaged"
    assert Tree.objects.filter(name="later").exists()


@pytest.mark.usefixtures("site")
def test_a_store_that_goes_away_leaves_no_whole_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_sha256: str) -> ArtifactStream:
        raise DomainError("store-away", "the bucket does not answer", permanent=False)

    monkeypatch.setattr(backup, "open_artifact", away)
    with pytest.raises(CommandError, match="does not answer"):
        call_command("backup", tmp_path / "backup")
    assert not (tmp_path / "backup" / MANIFEST).exists()


@pytest.mark.usefixtures("site")
def test_rows_that_are_not_those_of_the_backup_are_found_before_anything_changes(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    back_up(folder)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest["tables"]["sources_tree"] += 1
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    Tree.objects.create(name="later")
    with pytest.raises(DomainError, match=r"nothing was changed: .*table sources_tree would hold") as refused:
        restore(folder, replace=True)
    assert refused.value.code == "program-failed"
    assert Tree.objects.filter(name="later").exists()


@pytest.mark.usefixtures("site")
def test_store_that_is_away_leaves_a_database_of_which_the_operator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    back_up(folder)
    artifact_store().remove(SHA256)
    Tree.objects.create(name="later")

    def away(_sha256: str, _pieces: object) -> None:
        raise DomainError("store-away", "the bucket does not answer", permanent=False)

    with monkeypatch.context() as patched:
        patched.setattr(backup, "put_artifact", away)
        with pytest.raises(
            CommandError, match=r"the database is that of the backup by now.*does not answer.*--replace"
        ):
            call_command("restore", folder, "--replace")
    assert not Tree.objects.filter(name="later").exists()
    call_command("restore", folder, "--replace", "--no-recompute")
    assert artifact_store().find(SHA256) is not None


@pytest.mark.parametrize(("version", "is_refused"), [("9.6.24", True), ("14.9 (Debian 14.9-1)", True), ("99.1", False)])
def test_program_that_is_older_than_the_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_refused: bool
) -> None:
    program = tmp_path / "bin" / "pg_dump"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'pg_dump (PostgreSQL) {version}'\nexit $(($# > 1))\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(DomainError) as refused:
        back_up(tmp_path / "backup")
    assert refused.value.code == ("program-too-old" if is_refused else "program-failed")
    assert ("postgresql-client-" in refused.value.message) == is_refused


def test_programs_check_the_server_as_the_service_does(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"host": "db", "sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "options": "-c x=y"}
    monkeypatch.setattr(connection, "get_connection_params", lambda: given)
    assert backup._place() == {"PGHOST": "db", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/etc/ca.pem"}


def test_what_is_no_whole_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="holds no whole backup"):
        call_command("restore", tmp_path)
    assert rows_held() == []
    folder = tmp_path / "backup"
    back_up(folder)
    with pytest.raises(CommandError, match="is not empty"):
        call_command("backup", folder)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest["migrations"].append(["reports", "9999_not_yet"])
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DomainError) as refused:
        restore(folder, replace=True)
    assert refused.value.code == "newer-version"
