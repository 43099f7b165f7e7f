"""Unpacking an archive of modules: what a build machine made from a stranger's patch, so every name in it is hostile.

`lib/modules/RELEASE/...` belongs to the kernel, `tidemark/NAME-VERSION.ko` are the benchmark modules built with it.
"""

import contextlib
import os
import re
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.disk import sync_directory, write_durably

_MOST_FILES = 50_000
_MOST_BYTES = 4 * 1024**3
# Folders in folders. A kernel's modules lie in a dozen; copying a tree takes frames for each.
_DEEPEST = 32
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.ko")
_MARK = ".tidemark"
# Links of every modules_install into the build machine's tree: of no use here, and they lead outside.
_BUILD_LINKS = frozenset({"build", "source"})


def unpack_modules(archive: Path, target: Path) -> str:
    """Unpack into the new directory `target`; the release in it, or "" when there are only benchmark modules.

    Raises InfrastructureError for anything that is no plain file or directory in its place; `target` is gone then.
    """
    releases: set[str] = set()
    target.mkdir(parents=True)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            budget = _Budget()
            for member in tar:
                release = _unpack(tar, member, target, budget)
                releases |= {release} if release else set()
        if len(releases) > 1:
            raise InfrastructureError(f"the archive of modules has several releases: {', '.join(sorted(releases))}")
    except (tarfile.TarError, OSError, EOFError, ValueError, InfrastructureError) as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, InfrastructureError):
            raise
        raise InfrastructureError(f"the archive of modules cannot be unpacked: {error}") from error
    return next(iter(releases), "")


def install_modules(unpacked: Path, release: str, *, mark: str, root: Path = Path("/")) -> None:
    """Put `lib/modules/RELEASE` in its place; nothing is done when `mark` (the archive's hash) says it is there.

    Raises InfrastructureError where a kernel that is not ours has this release.
    """
    place = root / "lib/modules" / release
    found = _mark_of(place)
    if found == mark:
        return
    if place.exists() and not found:
        raise InfrastructureError(
            f"/lib/modules/{release} belongs to an installed kernel: give test kernels other names"
        )
    fresh, old = place.with_name(f".{release}.tidemark-new"), place.with_name(f".{release}.tidemark-old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(unpacked / "lib/modules" / release, fresh)
    write_durably(fresh / _MARK, mark.encode())
    os.sync()
    if place.exists():
        place.rename(old)
    fresh.rename(place)
    sync_directory(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_modules(root: Path = Path("/")) -> None:
    """Take away all that `install_modules` ever put below /lib/modules."""
    with contextlib.suppress(FileNotFoundError):
        for place in (root / "lib/modules").iterdir():
            if _mark_of(place) or re.fullmatch(r"\..*\.tidemark-(new|old)", place.name):
                shutil.rmtree(place, ignore_errors=True)


class _Budget:
    """How much an archive may still unpack to."""

    def __init__(self) -> None:
        self._files, self._bytes = _MOST_FILES, _MOST_BYTES

    def spend(self, size: int) -> None:
        self._files -= 1
        self._bytes -= size
        if self._files < 0 or self._bytes < 0:
            raise InfrastructureError(f"the archive of modules has over {_MOST_FILES} files or {_MOST_BYTES} bytes")


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, budget: _Budget) -> str:
    """Write one member below `target`; the release it belongs to, or ""."""
    path = PurePosixPath(member.name)
    parts = path.parts
    budget.spend(member.size)
    if member.issym() and path.name in _BUILD_LINKS and len(parts) == len(("lib", "modules", "RELEASE", "build")):
        return ""
    if len(parts) > _DEEPEST:
        raise InfrastructureError(f"the archive of modules has {member.name[:200]!r}, which lies too deep")
    if path.is_absolute() or ".." in parts or not (member.isfile() or member.isdir()):
        raise InfrastructureError(f"the archive of modules has {member.name[:200]!r}, which is no file inside it")
    release = _checked_place(parts, member)
    place = target.joinpath(*parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return release
    place.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with source, place.open("xb") as stream:
        shutil.copyfileobj(source, stream)
    return release


def _checked_place(parts: tuple[str, ...], member: tarfile.TarInfo) -> str:
    match parts:
        case () | ("lib",) | ("lib", "modules") | ("tidemark",) if member.isdir():
            return ""
        case ("lib", "modules", release, *rest) if _RELEASE.fullmatch(release) and (rest or member.isdir()):
            return release
        case ("tidemark", name) if _MODULE.fullmatch(name) and member.isfile():
            return ""
    raise InfrastructureError(f"the archive of modules has {member.name[:200]!r}, which does not belong there")


def _mark_of(place: Path) -> str:
    try:
        return (place / _MARK).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
