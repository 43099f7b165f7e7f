"""The system of the testbed's machines: a directory tree, made without root, and a file system image of it."""

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.paths import CACHE, program, run
from tests.testbed.programs import copy_busybox, copy_program, copy_python

# Room for the tree (about 110 MiB), the kernels of a session, its results, and what the agent wants free for a case.
IMAGE_BYTES = 1024 * 1024**2
_FOLDERS = (
    "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "run", "tmp", "etc/tidemark", "etc/testbed",
    "var/lib", "boot/grub", "root",
)  # fmt: skip
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_PROGRAMS = ("kexec", "grub-editenv", "taskset")
_INIT = Path(__file__).with_name("init.sh")


def system_image() -> Path:
    """The file system image that every machine starts from; made once for each version of what is in it."""
    image = CACHE / "system" / f"{_version()}.ext4"
    with only_writer(CACHE / "system"):
        if not image.exists():
            for old in image.parent.glob("*.ext4"):
                old.unlink()
            tree = image.parent / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            make_tree(tree)
            part = image.with_suffix(".part")
            make_file_system(part, tree)
            shutil.rmtree(tree)
            part.replace(image)
    return image


def make_tree(tree: Path) -> None:
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    for name, target in _LINKS.items():
        (tree / name).symlink_to(target)
    copy_busybox(tree)
    for name in _PROGRAMS:
        link = tree / program(name).relative_to("/")
        link.unlink(missing_ok=True)
        (tree / "usr/bin" / name).unlink(missing_ok=True)
        copy_program(tree, program(name))
    copy_python(tree)
    shutil.copy2(_INIT, tree / "init")
    (tree / "init").chmod(0o755)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")


def make_file_system(image: Path, tree: Path, *, size: int = IMAGE_BYTES) -> None:
    """Write `tree` as ext4 into `image`; the files belong to root."""
    image.unlink(missing_ok=True)
    # Grub 2.06 cannot read a file system with the feature that newer mke2fs switch on.
    options = ["-O", "^metadata_csum_seed", "-E", "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"]
    run([program("mkfs.ext4"), "-q", "-F", "-b", "4096", "-d", tree, *options, image, f"{size // 1024}k"])


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Waits while another process makes things in `folder`; a killed one's lock is free."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _version() -> str:
    total = hashlib.sha256(f"{sys.version} {IMAGE_BYTES}".encode())
    for source in (_INIT, Path(__file__), Path(__file__).with_name("programs.py")):
        total.update(source.read_bytes())
    for name in ("busybox", *_PROGRAMS):
        total.update(program(name).read_bytes())
    return total.hexdigest()[:16]
