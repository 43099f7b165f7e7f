"""Where files of builds are stored, from the environment: Django's STORAGES["artifacts"]."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from server.core.addresses import configured_address
from server.env import secret

_STORES = ("files", "s3")


def artifact_storage(env: Any) -> dict[str, Any]:
    """The entry for STORAGES; a bucket without name or keys ends the process at its start."""
    kind = env.str("TIDEMARK_ARTIFACT_STORAGE", default="files")
    if kind not in _STORES:
        raise ImproperlyConfigured(f"TIDEMARK_ARTIFACT_STORAGE is {kind!r}, not one of {', '.join(_STORES)}")
    if kind == "files":
        return {"BACKEND": "server.builds.stores.folder.FolderStore"}
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
    return {"BACKEND": "server.builds.stores.bucket.BucketStore", "OPTIONS": options}
