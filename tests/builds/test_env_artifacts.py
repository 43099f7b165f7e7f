import environ
import pytest
from django.core.exceptions import ImproperlyConfigured

from server.env import artifact_storage

KEYS = {"TIDEMARK_ARTIFACT_S3_KEY_ID": "key", "TIDEMARK_ARTIFACT_S3_SECRET_KEY": "secret"}


def chosen(monkeypatch: pytest.MonkeyPatch, **values: str) -> dict[str, object]:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    entry: dict[str, object] = artifact_storage(environ.Env())
    return entry


def test_files_lie_in_a_folder_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch) == {"BACKEND": "server.builds.storage.FolderStore"}


def test_bucket_has_its_address_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = chosen(
        monkeypatch,
        TIDEMARK_ARTIFACT_STORAGE="s3",
        TIDEMARK_ARTIFACT_S3_BUCKET="kernels",
        TIDEMARK_ARTIFACT_S3_ENDPOINT="https://s3.example.org",
        TIDEMARK_ARTIFACT_S3_CA_FILE="/etc/ca.pem",
        **KEYS,
    )
    assert entry["OPTIONS"] == {
        "bucket_name": "kernels", "endpoint_url": "https://s3.example.org", "region_name": "us-east-1", "location": "",
        "access_key": "key", "secret_key": "secret", "default_acl": None, "verify": "/etc/ca.pem",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"TIDEMARK_ARTIFACT_STORAGE": "ftp"}, "'ftp', not one of files, s3"),
        ({"TIDEMARK_ARTIFACT_STORAGE": "s3", **KEYS}, "set TIDEMARK_ARTIFACT_S3_BUCKET"),
        ({"TIDEMARK_ARTIFACT_STORAGE": "s3", "TIDEMARK_ARTIFACT_S3_BUCKET": "b"}, "set TIDEMARK_ARTIFACT_S3_KEY_ID"),
    ],
)
def test_store_that_is_not_whole_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        chosen(monkeypatch, **values)
