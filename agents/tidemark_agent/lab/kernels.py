"""Kernels for this machine: fetched once, installed for each boot."""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidemark_agent.assignment import KernelImage
from tidemark_agent.boot.install import install_modules, remove_modules, unpack_modules
from tidemark_agent.config import BootConfig
from tidemark_agent.disk import make_directory, settle, sync_directory, temporary_for
from tidemark_agent.errors import InfrastructureError, RefusedError, StoppedError, UnreachableError
from tidemark_agent.process import capture

_FETCH_PATIENCE = 600.0
_INITRAMFS_SECONDS = 600.0
# Images and modules of both kernels of a session, and those of the session before, which may come again.
_KEPT = 8
# Of a bzImage: "HdrS" at 0x202, and at 0x20e where the release stands, counted from 0x200.
_MAGIC_AT, _RELEASE_AT, _RELEASE_BASE = 0x202, 0x20E, 0x200
_HEADER_BYTES = 64 * 1024
_RELEASE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")


class Artifacts(Protocol):
    """Where kernels come from."""

    def fetch_artifact(self, sha256: str, target: Path, *, patience: float) -> None: ...


@dataclass(frozen=True)
class KernelStore:
    """The kernels that this machine holds. `state` is the agent's state directory."""

    state: Path
    config: BootConfig
    artifacts: Artifacts
    stop: threading.Event
    root: Path = Path("/")

    def fetch(self, kernels: Iterable[KernelImage], programs: Mapping[str, str] | None = None) -> None:
        """Bring all that a session needs to this disk: a kernel under test may have no network.

        `programs` are hashes by the name under which the program is run.
        """
        needed = [sha256 for kernel in kernels for sha256 in (kernel.image, kernel.modules) if sha256]
        for sha256 in needed:
            self._fetched(sha256)
        for name, sha256 in (programs or {}).items():
            self._make_program(name, sha256)
        # By a clock that was set back what was just fetched looks oldest.
        _keep_newest(self._directory("kernels"), _KEPT, needed)

    def image(self, kernel: KernelImage) -> Path:
        return self._fetched(kernel.image)

    def benchmark_modules(self, kernel: KernelImage) -> Path | None:
        """The directory with the benchmark modules that were built with this kernel."""
        place = self._unpacked(kernel) / "tidemark"
        return place if kernel.modules and place.is_dir() else None

    def program(self, name: str, sha256: str) -> Path | None:
        """A program that was fetched, None where there is none or it is no longer what it was."""
        path = self._directory("programs") / sha256 / name
        return path if path.is_file() and _hash_of(path) == sha256 else None

    def prepare(self, kernel: KernelImage) -> Path | None:
        """Put the modules of `kernel` where it looks for them; its initramfs, if this machine wants one."""
        release = ""
        if kernel.modules:
            release = self._install(kernel)
        if not self.config.initramfs:
            return None
        image = self.image(kernel)
        return self._initramfs(kernel, image, release or release_of_image(image))

    def tidy(self) -> None:
        """Remove what only the sessions needed; images and archives stay for a while, unpacked trees do not."""
        remove_modules(self.root)
        for name in ("modules", "initramfs", "programs"):
            shutil.rmtree(self._directory(name), ignore_errors=True)

    def _make_program(self, name: str, sha256: str) -> None:
        if self.program(name, sha256) is None:
            path = self._directory("programs") / sha256 / name
            make_directory(path.parent)
            made = temporary_for(path)
            shutil.copyfile(self._fetched(sha256), made)
            made.chmod(0o755)
            settle(made, path)

    def _install(self, kernel: KernelImage) -> str:
        unpacked = self._unpacked(kernel)
        note = unpacked / "release"
        if not note.is_file():
            archive = self._fetched(kernel.modules)
            fresh = temporary_for(unpacked)
            release = unpack_modules(archive, fresh)
            (fresh / "release").write_text(release, encoding="ascii")
            shutil.rmtree(unpacked, ignore_errors=True)
            _settle_tree(fresh, unpacked)
        release = note.read_text(encoding="ascii")
        if release:
            install_modules(unpacked, release, mark=kernel.modules, root=self.root)
            if shutil.which("depmod") and self.root == Path("/"):
                capture(["depmod", release], scratch=self.state, timeout=_INITRAMFS_SECONDS, stop=self.stop)
        return release

    def _initramfs(self, kernel: KernelImage, image: Path, release: str) -> Path:
        target = self._directory("initramfs") / f"{kernel.image[:16]}-{kernel.modules[:16]}.img"
        if target.is_file():
            return target
        made = temporary_for(target)
        modules = self.root / "lib/modules" / release
        places = {"initramfs": str(made), "release": release, "image": str(image), "modules": str(modules)}
        try:
            command = [_filled(word, places) for word in self.config.initramfs]
            capture(command, scratch=self.state, timeout=_INITRAMFS_SECONDS, stop=self.stop)
            if not made.is_file():
                raise InfrastructureError(f"{command[0]} made no {{initramfs}}")
            settle(made, target)
        finally:
            made.unlink(missing_ok=True)
        return target

    def _fetched(self, sha256: str) -> Path:
        """The artifact with this hash, from the disk or the service; what the disk has is hashed anew."""
        directory = self._directory("kernels")
        path = directory / sha256
        if path.is_file() and _hash_of(path) == sha256:
            path.touch()
            return path
        try:
            self.artifacts.fetch_artifact(sha256, path, patience=_FETCH_PATIENCE)
        except (RefusedError, UnreachableError) as error:
            if self.stop.is_set():
                raise StoppedError("stopped while a kernel was fetched") from error
            raise InfrastructureError(f"the server does not give {sha256}: {error}") from error
        settle(path, path)
        return path

    def _unpacked(self, kernel: KernelImage) -> Path:
        return self._directory("modules") / (kernel.modules or "none")

    def _directory(self, name: str) -> Path:
        path = self.state / "lab" / name
        make_directory(path)
        return path


def release_of_image(image: Path) -> str:
    """`uname -r` of a bzImage; raises InfrastructureError for other formats, where only its modules can tell."""
    with image.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if header[_MAGIC_AT : _MAGIC_AT + 4] == b"HdrS":
        at = _RELEASE_BASE + int.from_bytes(header[_RELEASE_AT : _RELEASE_AT + 2], "little")
        found = _RELEASE.match(header, at)
        if found:
            return found[0].decode("ascii")
    raise InfrastructureError("the kernel's release is not known: it came without modules and is no bzImage")


def _settle_tree(fresh: Path, target: Path) -> None:
    """Give an unpacked tree its name once all of it is on the disk."""
    os.sync()
    fresh.rename(target)
    sync_directory(target.parent)


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _hash_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _keep_newest(directory: Path, count: int, needed: Collection[str]) -> None:
    files = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[count:]:
        if path.name not in needed:
            path.unlink(missing_ok=True)
