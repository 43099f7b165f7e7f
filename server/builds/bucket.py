"""Artifacts in a bucket of a server that speaks S3: PREFIX/ab/cdef..., one object for each SHA-256."""

import base64
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from storages.backends.s3 import S3Storage

from server.builds.storage import Stored
from server.core.errors import DomainError
from server.core.files import forget_files

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPE = "application/octet-stream"
_GONE = {"404", "NoSuchKey", "NotFound"}


def client_config() -> Config:
    """Time limits and retries; and no checksums by default, which not every server understands."""
    return Config(
        connect_timeout=5,
        read_timeout=60,
        retries={"max_attempts": 3, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": settings.ARTIFACT_S3_ADDRESSING},
        signature_version="s3v4",
    )


class _Body:
    """The bytes of an object, on their way: a server that goes away in the middle is told in words, too."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int) -> bytes:
        with _told():
            return cast("bytes", self._body.read(size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._body.close()


class BucketStore(S3Storage):  # type: ignore[misc]
    """One PUT request for each file, with the SHA-256 that the server has to find: an object is whole or not there."""

    def get_default_settings(self) -> dict[str, Any]:
        return {**super().get_default_settings(), "client_config": client_config()}

    @property
    def _client(self) -> Any:
        return self.connection.meta.client

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}{sha256[:2]}/{sha256[2:]}"

    @property
    def _prefix(self) -> str:
        return f"{self.location.strip('/')}/" if self.location.strip("/") else ""

    def _where(self, sha256: str) -> dict[str, str]:
        return {"Bucket": self.bucket_name, "Key": self._key(sha256)}

    def spool_folder(self) -> Path:
        folder = Path(tempfile.gettempdir()) / "tidemark-artifacts"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def find(self, sha256: str) -> Stored | None:
        with _told():
            try:
                found = self._client.head_object(**self._where(sha256))
            except ClientError as error:
                if _code(error) in _GONE:
                    return None
                raise
        return Stored(sha256, int(found["ContentLength"]), cast("datetime", found["LastModified"]))

    def adopt(self, sha256: str, file: Path) -> None:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        with _told(), file.open("rb") as body:
            self._client.put_object(**self._where(sha256), Body=body, ContentType=_TYPE, ChecksumSHA256=checksum)
        file.unlink(missing_ok=True)

    def freshen(self, sha256: str) -> None:
        where = self._where(sha256)
        with _told():
            try:
                # Only a copy onto itself that replaces something gives an object a new date.
                self._client.copy_object(**where, CopySource=where, MetadataDirective="REPLACE", ContentType=_TYPE)
            except ClientError as error:
                if _code(error) not in _GONE:
                    raise

    def open(self, sha256: str) -> BinaryIO:
        with _told():
            try:
                return cast("BinaryIO", _Body(self._client.get_object(**self._where(sha256))["Body"]))
            except ClientError as error:
                if _code(error) in _GONE:
                    raise FileNotFoundError(sha256) from error
                raise

    def remove(self, sha256: str) -> None:
        with _told():
            self._client.delete_object(**self._where(sha256))

    def put_aside(self, sha256: str) -> None:
        where = self._where(sha256)
        with _told():
            try:
                self._client.copy_object(
                    Bucket=where["Bucket"], Key=f"{self._prefix}damaged/{sha256}", CopySource=where
                )
            except ClientError as error:
                if _code(error) not in _GONE:
                    raise
            self._client.delete_object(**where)

    def every(self) -> Iterator[Stored]:
        with _told():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket_name, Prefix=self._prefix)
            for page in pages:
                for item in page.get("Contents", ()):
                    sha256 = item["Key"].removeprefix(self._prefix).replace("/", "")
                    if _SHA256.fullmatch(sha256) and item["Key"] == self._key(sha256):
                        yield Stored(sha256, int(item["Size"]), item["LastModified"])

    def forget_litter(self) -> int:
        # Damaged objects are the bucket's own to expire: a rule of its life cycle does that.
        return forget_files(self.spool_folder(), ("*",), days=1)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _told() -> Iterator[None]:
    """A server that is away or refuses is told in words; both may pass."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise DomainError("store-away", f"the store of artifacts: {error}", permanent=False) from error
