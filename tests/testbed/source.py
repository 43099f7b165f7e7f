"""The kernel source of the testbed's machines: Debian's linux-source-7.3, fetched and unpacked once."""

import shutil
from pathlib import Path

from demo.source import SourcePackages, check_space
from tests.testbed.paths import CACHE, program, run
from tests.testbed.system import only_writer

PACKAGE, SUITE = "linux-source-7.3", "trixie-backports"


def kernel_source(cache: Path = CACHE) -> Path:
    """The unpacked source. Without any network when it is there; goes on where an earlier try ended."""
    source = cache / "linux"
    with only_writer(cache):
        if not (version_file(cache).exists() and source.is_dir()):
            check_space(cache)
            packages = SourcePackages(cache / "apt", PACKAGE, SUITE)
            version = packages.refresh()[-1]
            _unpack(packages.download(version), source, scratch=cache / "unpacking")
            # Written last: with it the tree is known to be whole.
            version_file(cache).write_text(f"{version}\n")
            packages.discard()
    return source


def version_file(cache: Path = CACHE) -> Path:
    return cache / "linux.version"


def _unpack(package: Path, source: Path, *, scratch: Path) -> None:
    for folder in (scratch, source):
        shutil.rmtree(folder, ignore_errors=True)
    scratch.mkdir(parents=True)
    run([program("dpkg-deb"), "-x", package, scratch])
    tarball = scratch / "usr" / "src" / f"{PACKAGE}.tar.xz"
    tree = scratch / "tree"
    tree.mkdir()
    run([program("tar"), "-xf", tarball, "-C", tree, "--strip-components=1"])
    tree.rename(source)
    shutil.rmtree(scratch)
