"""Programs of this host for a guest's system: each at its own path, with the libraries that it needs."""

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from tests.testbed.paths import program, run

_LIBRARY = re.compile(r"(?:=>\s+)?(/\S+)\s+\(0x")
# What no agent needs, and what makes a standard library large.
_PRUNED = shutil.ignore_patterns(
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "dist-packages",
    "config-3*", "pydoc_data", "*.a", "_test*.so", "_tkinter*.so", "_sqlite3*.so", "_curses*.so", "readline*.so",
    "_dbm*.so", "_gdbm*.so", "*.opt-[12].pyc",
)  # fmt: skip


def copy_file(system: Path, file: Path) -> None:
    """`file` at the same path in the guest's system."""
    target = system / file.relative_to("/")
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)


def copy_program(system: Path, file: Path) -> None:
    """A program with its shared libraries and their loader."""
    copy_file(system, file)
    copy_libraries(system, file)


def copy_libraries(system: Path, file: Path) -> None:
    for library in _LIBRARY.findall(run(["sh", "-c", 'ldd "$0" || true', file])):
        copy_file(system, Path(library))


def copy_python(system: Path) -> None:
    """The interpreter that runs the tests, as /usr/bin/python3, with a smaller standard library."""
    interpreter = Path(os.path.realpath(sys.executable))
    copy_program(system, interpreter)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    shutil.copytree(stdlib, system / stdlib.relative_to("/"), ignore=_PRUNED, dirs_exist_ok=True)
    for extension in (stdlib / "lib-dynload").glob("*.so"):
        if (system / extension.relative_to("/")).exists():
            copy_libraries(system, extension)
    # Nothing names it: the C library loads it when a thread is ended with the interpreter, and aborts without it.
    unwinder = run([program("gcc"), "-print-file-name=libgcc_s.so.1"]).strip()
    copy_file(system, Path(unwinder).resolve())
    link = system / "usr/bin/python3"
    link.unlink(missing_ok=True)
    link.symlink_to(interpreter)


def copy_busybox(system: Path) -> None:
    """One static program and a name for each of its commands."""
    busybox = program("busybox")
    target = system / "usr/bin/busybox"
    shutil.copy2(busybox, target)
    for name in run([busybox, "--list"]).split():
        link = system / "usr/bin" / name
        if not link.exists():
            link.symlink_to("busybox")
