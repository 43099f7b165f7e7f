"""Artifacts in a folder: STATE_DIR/artifacts/ab/cdef..., one file for each SHA-256."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.core.files.storage import FileSystemStorage

from server.builds.stores import Stored
from server.core.files import forget_files

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAMAGED = "damaged"
# For the service and its group: whoever else has an account on this host has no business with kernels not published.
_FOLDER, _FILE = 0o750, 0o640
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
        return self._folder("incoming")

    def _folder(self, name: str) -> Path:
        """One below the root. What other accounts of this host could read before, they cannot from now on."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        for place in (self.root, folder):
            if stat.S_IMODE(place.stat().st_mode) & ~_FOLDER:
                # Where it is somebody else's, it stays as he wants it.
                with suppress(PermissionError):
                    place.chmod(_FOLDER)
        return folder

    def find(self, sha256: str) -> Stored | None:
        try:
            found = self.place(sha256).stat()
        except FileNotFoundError:
            return None
        return Stored(sha256, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def adopt(self, sha256: str, file: Path) -> None:
        target = self.place(sha256)
        self._folder(target.parent.name)
        file.chmod(_FILE)
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
        self._folder(_DAMAGED)
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
