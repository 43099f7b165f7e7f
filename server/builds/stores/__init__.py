"""Where files of builds lie: a folder that all processes share, or a bucket that speaks S3.

Both keep a file under its SHA-256 and have it whole or not at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from django.core.files.storage import storages


@dataclass(frozen=True)
class Stored:
    """A file in the store: its SHA-256 in hex, its size in bytes, and when it was stored or last asked to stay."""

    sha256: str
    size: int
    stored_at: datetime


class ArtifactStore(Protocol):
    """What both kinds can do. A store that cannot be reached raises DomainError `store-away`, which passes."""

    def spool_folder(self) -> Path:
        """Folder on this host where a file is collected and checked before it is stored."""

    def find(self, sha256: str) -> Stored | None:
        """The file of this name, or None."""

    def adopt(self, sha256: str, file: Path) -> None:
        """Store a file that was checked; at once and whole. `file` may be gone afterwards."""

    def freshen(self, sha256: str) -> None:
        """Make the file look as if it had been stored now, if it is there."""

    def open(self, sha256: str) -> BinaryIO:
        """The bytes from the first one on. Raises FileNotFoundError."""

    def remove(self, sha256: str) -> None:
        """Delete the file; harmless when it is gone."""

    def put_aside(self, sha256: str) -> None:
        """Move a damaged file away from its name, for people to look at."""

    def every(self) -> Iterator[Stored]:
        """All files, in no order."""

    def forget_litter(self) -> int:
        """Remove what killed processes left of uploads, and damaged files put aside long ago; how many."""


def artifact_store() -> ArtifactStore:
    """The store of this site (settings.STORAGES["artifacts"])."""
    return cast("ArtifactStore", storages["artifacts"])
