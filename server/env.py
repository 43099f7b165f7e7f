"""Settings from the environment; a secret NAME may also come from the file that NAME_FILE names."""

import os
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from server.core.addresses import configured_address


def secret(name: str, default: str | None = None) -> str:
    """The value of NAME, or the stripped content of the file NAME_FILE; fails at start when neither is given."""
    file_name = os.environ.get(f"{name}_FILE")
    if file_name:
        try:
            return Path(file_name).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: cannot read {file_name}: {error}") from error
    value = os.environ.get(name, default)
    if value is None or value == "":
        raise ImproperlyConfigured(f"set {name} or {name}_FILE")
    return value


def one_of(name: str, *words: str) -> str:
    """The value of NAME, which is one of `words`, the first where it is not given: no slip opens a wall."""
    value = os.environ.get(name) or words[0]
    if value not in words:
        raise ImproperlyConfigured(f"{name} is {value!r}: it may be {' or '.join(words)}")
    return value


_STORES = ("files", "s3")


def artifact_storage(env: Any) -> dict[str, Any]:
    """The entry for STORAGES; a bucket without name or keys ends the process at its start."""
    kind = env.str("TIDEMARK_ARTIFACT_STORAGE", default="files")
    if kind not in _STORES:
        raise ImproperlyConfigured(f"TIDEMARK_ARTIFACT_STORAGE is {kind!r}, not one of {', '.join(_STORES)}")
    if kind == "files":
        return {"BACKEND": "server.builds.storage.FolderStore"}
    bucket = env.str("TIDEMARK_ARTIFACT_S3_BUCKET", default="")
    if not bucket:
        raise ImproperlyConfigured("TIDEMARK_ARTIFACT_STORAGE is s3: set TIDEMARK_ARTIFACT_S3_BUCKET")
    options: dict[str, Any] = {
        "bucket_name": bucket,
        "endpoint_url": configured_address(
            "TIDEMARK_ARTIFACT_S3_ENDPOINT", env.str("TIDEMARK_ARTIFACT_S3_ENDPOINT", default="")
        )
        or None,
        "region_name": env.str("TIDEMARK_ARTIFACT_S3_REGION", default="us-east-1"),
        "location": env.str("TIDEMARK_ARTIFACT_S3_PREFIX", default=""),
        "access_key": secret("TIDEMARK_ARTIFACT_S3_KEY_ID"),
        "secret_key": secret("TIDEMARK_ARTIFACT_S3_SECRET_KEY"),
        "default_acl": None,
    }
    if ca_file := env.str("TIDEMARK_ARTIFACT_S3_CA_FILE", default=""):
        options["verify"] = ca_file
    return {"BACKEND": "server.builds.bucket.BucketStore", "OPTIONS": options}
