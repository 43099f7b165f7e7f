"""Stores that break while a file is read."""

import errno
import io
from collections.abc import Callable

import pytest
from botocore.exceptions import ReadTimeoutError
from pytest_django.fixtures import Settings

from server.builds.bucket import BucketStore
from server.builds.expiry import check_artifacts
from server.builds.models import BuildState
from server.builds.storage import FolderStore
from tests.builds.conftest import use_bucket
from tests.builds.files import IMAGE, sha_of, state_of, stored_build
from workers.upkeep import clean

pytestmark = pytest.mark.django_db


class Failing(io.BytesIO):
    """A file whose second piece cannot be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(b"piece")
        self._error = error

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        if not piece:
            raise self._error
        return piece


def failing_at(name: str, error: Exception) -> Callable[[FolderStore, str], io.BytesIO]:
    real = FolderStore.open

    def opened(store: FolderStore, sha256: str) -> io.BytesIO:
        return Failing(error) if sha256 == name else real(store, sha256)  # type: ignore[return-value]

    return opened


def test_file_that_the_disk_cannot_read_is_put_aside_and_the_others_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, good = stored_build({"image": b"bad"}), stored_build({"image": b"good"})
    opened = failing_at(sha_of(b"bad"), OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(FolderStore, "open", opened)
    assert check_artifacts(seconds=60) == (2, [sha_of(b"bad")])
    assert (state_of(bad), state_of(good)) == (BuildState.EXPIRED, BuildState.BUILT)


def test_disk_that_is_away_for_a_while_costs_no_kernel_and_no_other_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    build = stored_build()
    tended: list[str] = []
    monkeypatch.setattr(FolderStore, "open", failing_at(sha_of(IMAGE), OSError(errno.ESTALE, "Stale file handle")))
    monkeypatch.setattr("workers.upkeep.tend_all", lambda: tended.append("sources"))
    clean()
    assert tended == ["sources"]
    assert state_of(build) == BuildState.BUILT


def test_bucket_that_goes_away_in_the_middle_of_a_file_costs_no_kernel(
    settings: Settings, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = use_bucket(settings, s3, location="middle")
    assert isinstance(store, BucketStore)
    build = stored_build()
    get = store._client.get_object
    timeout = ReadTimeoutError(endpoint_url="s3")
    monkeypatch.setattr(store._client, "get_object", lambda **where: {**get(**where), "Body": Failing(timeout)})
    assert check_artifacts(seconds=60) == (0, [])
    assert state_of(build) == BuildState.BUILT
