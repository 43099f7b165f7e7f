"""Artifacts in a folder: STATE_DIR/artifacts/ab/cdef..., one file for each SHA-256."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.core.files.storage import FileSystemStorage

from server.builds.stores import Stored
from server.core.files import forget_files

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAMAGED = "damaged"
# What was put aside is there to be looked at once somebody has read the history.
_DAMAGED_DAYS = 30.0


class FolderStore(FileSystemStorage):
    """A file appears by a rename after all its bytes are on the disk."""

    @property
    def root(self) -> Path:
        return Path(settings.STATE_DIR) / "artifacts"

    # FileSystemStorage keeps its folder from its first use on; tests give each its own.
    @property
    def base_location(self) -> str:
        return str(self.root)

    @property
    def location(self) -> str:
        return str(self.root)

    def place(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256[2:]

    def spool_folder(self) -> Path:
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def find(self, sha256: str) -> Stored | None:
        try:
            found = self.place(sha256).stat()
        except FileNotFoundError:
            return None
        return Stored(sha256, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def adopt(self, sha256: str, file: Path) -> None:
        target = self.place(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.chmod(0o644)
        file.replace(target)
        # The name itself must outlive a power cut, too.
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def freshen(self, sha256: str) -> None:
        if self.find(sha256):
            os.utime(self.place(sha256))

    def open(self, sha256: str) -> BinaryIO:  # type: ignore[override]
        return self.place(sha256).open("rb")

    def remove(self, sha256: str) -> None:
        self.place(sha256).unlink(missing_ok=True)

    def put_aside(self, sha256: str) -> None:
        aside = self.root / _DAMAGED / sha256
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.place(sha256).replace(aside)
            os.utime(aside)
        except FileNotFoundError:
            return

    def every(self) -> Iterator[Stored]:
        for path in self.root.glob("[0-9a-f][0-9a-f]/*"):
            sha256 = path.parent.name + path.name
            if _SHA256.fullmatch(sha256) and (found := self.find(sha256)):
                yield found

    def forget_litter(self) -> int:
        # Older versions collected uploads beside their places.
        uploads = forget_files(self.root, ("incoming/*", "*/.incoming-*"), days=1)
        return uploads + forget_files(self.root, (f"{_DAMAGED}/*",), days=_DAMAGED_DAYS)
