import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from server.builds.storage import (
    ArtifactStore,
    FolderStore,
    artifact_store,
    has_artifact,
    is_whole,
    open_artifact,
    put_artifact,
)
from server.core import clock
from server.core.errors import DomainError
from tests.builds.conftest import use_bucket

pytestmark = pytest.mark.django_db
CONTENT = b"kernel" * 100_000
SHA = hashlib.sha256(CONTENT).hexdigest()


def code_of(call: object, *args: object) -> str:
    with pytest.raises(DomainError) as raised:
        call(*args)  # type: ignore[operator]
    return raised.value.code


def spool(store: ArtifactStore) -> list[Path]:
    return [path for path in store.spool_folder().rglob("*") if path.is_file()]


def test_artifact_is_stored_whole_under_its_hash_and_read_back(store: ArtifactStore) -> None:
    assert put_artifact(SHA, [CONTENT[:3], CONTENT[3:]])
    assert not put_artifact(SHA, [b"is not read"])
    stream = open_artifact(SHA)
    assert (b"".join(stream.chunks), stream.size) == (CONTENT, len(CONTENT))
    assert has_artifact(SHA, len(CONTENT))
    assert not has_artifact(SHA, 1)
    assert [(found.sha256, found.size) for found in store.every()] == [(SHA, len(CONTENT))]
    assert spool(store) == []


def test_nearly_full_disk_takes_no_artifact_and_keeps_nothing_of_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a builder's token must not be able to stop the database, nor by one upload that began in time."""
    free = [3 << 30, 1 << 30]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free.pop(0) if free[1:] else free[0]))
    with pytest.raises(DomainError) as raised:
        put_artifact(SHA, [b"x" * (16 << 20), b"is not read"])
    assert (raised.value.code, raised.value.permanent) == ("disk-full", False)
    assert code_of(put_artifact, SHA, [CONTENT]) == "disk-full"
    assert store.find(SHA) is None
    assert spool(store) == []


def test_empty_artifact_is_stored_and_read_back(store: ArtifactStore) -> None:
    empty = hashlib.sha256(b"").hexdigest()
    assert put_artifact(empty, [])
    assert b"".join(open_artifact(empty).chunks) == b""


def test_wrong_bytes_and_too_many_are_refused_and_leave_nothing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_of(put_artifact, SHA, [b"other"]) == "hash-mismatch"
    monkeypatch.setattr("server.builds.storage.MAX_BYTES", 100)
    assert code_of(put_artifact, SHA, [CONTENT]) == "too-large"
    assert (store.find(SHA), list(store.every()), spool(store)) == (None, [], [])


def test_interrupted_upload_leaves_nothing(store: ArtifactStore) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT[:3]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        put_artifact(SHA, broken())
    assert (list(store.every()), spool(store)) == ([], [])


def test_artifact_that_is_not_there_is_not_found(store: ArtifactStore) -> None:
    assert code_of(open_artifact, SHA) == "not-found"
    assert not is_whole(SHA)
    store.remove(SHA)
    store.freshen(SHA)
    store.put_aside(SHA)


def damage(store: ArtifactStore, sha256: str, content: bytes) -> None:
    """Put other bytes below the name, past all checks."""
    file = store.spool_folder() / "damage"
    file.write_bytes(content)
    store.adopt(sha256, file)


@pytest.mark.parametrize("wrong", [CONTENT[:-1], b"\1" + CONTENT[1:], b""])
def test_reader_of_a_damaged_file_never_gets_all_of_it(store: ArtifactStore, wrong: bytes) -> None:
    put_artifact(SHA, [CONTENT])
    damage(store, SHA, wrong)
    got: list[bytes] = []
    stream = open_artifact(SHA)
    with pytest.raises(DomainError, match="is damaged"):
        got.extend(stream.chunks)
    assert sum(len(piece) for piece in got) < len(wrong) or not wrong
    assert not is_whole(SHA)


def test_file_put_aside_is_gone_and_can_be_stored_anew(store: ArtifactStore) -> None:
    put_artifact(SHA, [CONTENT])
    damage(store, SHA, b"rotten")
    store.put_aside(SHA)
    assert (store.find(SHA), list(store.every())) == (None, [])
    assert put_artifact(SHA, [CONTENT])
    assert is_whole(SHA)


def test_file_that_is_sent_again_looks_new(store: ArtifactStore) -> None:
    put_artifact(SHA, [CONTENT])
    if (path := FolderStore().place(SHA)).exists():
        os.utime(path, (0, 0))
    put_artifact(SHA, [CONTENT])
    found = store.find(SHA)
    assert found is not None
    assert clock.now() - found.stored_at < timedelta(minutes=1)
    assert is_whole(SHA)


@pytest.mark.django_db(transaction=True)
def test_several_writers_of_one_hash_all_succeed_and_store_one_file(store: ArtifactStore) -> None:
    barrier = threading.Barrier(4)
    told: list[bool] = []

    def chunks() -> Iterator[bytes]:
        yield CONTENT[:100]
        barrier.wait(20)
        yield CONTENT[100:]

    def write() -> None:
        told.append(put_artifact(SHA, chunks()))
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4
    assert is_whole(SHA)
    assert len(list(store.every())) == 1


def test_bucket_that_is_away_or_missing_is_told_as_trouble_that_passes(settings: Settings, s3: str) -> None:
    store = use_bucket(settings, s3)
    for options in ({"bucket_name": "no-such-bucket"}, {"endpoint_url": "http://127.0.0.1:9"}):
        storages = {**settings.STORAGES}
        entry = storages["artifacts"]
        settings.STORAGES = {**storages, "artifacts": {**entry, "OPTIONS": {**entry["OPTIONS"], **options}}}
        with pytest.raises(DomainError) as raised:
            put_artifact(SHA, [CONTENT])
        assert (raised.value.code, raised.value.permanent) == ("store-away", False)
    assert spool(store) == []


def test_two_services_share_a_bucket_by_prefix(settings: Settings, s3: str) -> None:
    use_bucket(settings, s3, location="one")
    put_artifact(SHA, [CONTENT])
    use_bucket(settings, s3, location="two/")
    assert list(artifact_store().every()) == []
    assert not has_artifact(SHA, len(CONTENT))
