"""Both kinds of stores for every test that asks for `store`: a folder, and a bucket of a real S3 server."""

from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from server.builds.bucket import BucketStore
from server.builds.storage import ArtifactStore, artifact_store
from tests.builds.s3_server import BUCKET, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


def use_bucket(settings: Settings, address: str, **options: object) -> ArtifactStore:
    """Make the site keep artifacts in a bucket, which is made if it is not there."""
    chosen = {
        "bucket_name": BUCKET, "endpoint_url": address, "region_name": "us-east-1", "access_key": "key",
        "secret_key": "secret", "default_acl": None, "location": "", **options,
    }  # fmt: skip
    entry = {"BACKEND": "server.builds.bucket.BucketStore", "OPTIONS": chosen}
    settings.STORAGES = {**settings.STORAGES, "artifacts": entry}
    store = artifact_store()
    assert isinstance(store, BucketStore)
    store.connection.create_bucket(Bucket=chosen["bucket_name"])
    return store


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, settings: Settings) -> ArtifactStore:
    if request.param == "folder":
        return artifact_store()
    location = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return use_bucket(settings, request.getfixturevalue("s3"), location=location)
