"""The testbed's kernels: a few images from one source and one configuration, made in one folder of objects.

An image is kept by what it is made from, so that a second run builds nothing; after a change only what depends on it
is compiled again. The objects stay in the state of the kernel that was asked for last.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidemark_agent.system.elf import build_id_of_file

from tests.testbed.edits import Edit, apply_edits, put_back
from tests.testbed.paths import CACHE, TestbedError, program, run
from tests.testbed.source import kernel_source, version_file
from tests.testbed.system import only_writer

FRAGMENT = Path(__file__).with_name("kernel.config")
# Without ccache: the objects are kept anyway, and filling a cache costs half of what compiling costs.
_COMPILER = "gcc"
# No fast kernel is needed here: so it takes a fifth less to compile. Without the second one a function is still called
# that a 64-bit kernel does not have.
_FLAGS = "-O1 -fipa-cp"
_KEPT = ("arch/x86/boot/bzImage", "Module.symvers", ".config", "include/config/kernel.release")
# The same bytes whenever and by whomever it is built.
_REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01 00:00:00 UTC",
    "KBUILD_BUILD_USER": "tidemark",
    "KBUILD_BUILD_HOST": "testbed",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
}


@dataclass(frozen=True)
class Recipe:
    """What is special about one kernel: the end of its release and its edits of the source."""

    name: str
    edits: tuple[Edit, ...] = ()
    local_version: str = ""


@dataclass(frozen=True)
class Kernel:
    """A built kernel; `folder` has bzImage, Module.symvers, .config and kernel.release."""

    name: str
    folder: Path
    build_id: str

    @property
    def image(self) -> Path:
        return self.folder / "bzImage"

    @property
    def release(self) -> str:
        return (self.folder / "kernel.release").read_text().strip()


SAFE = Recipe("safe", local_version="-safe")
BASE = Recipe("base")
# A patch like the one that the service was made for: one memcpy() of a whole folio in place of a copy per page. Which
# instructions copy_page(), copy_mc_to_kernel() and memcpy() are is chosen when the kernel boots, each by another flag
# of the CPU. So the patch exchanges one primitive for another on some CPUs and not on others.
_FUNCTION = (
    "void folio_copy(struct folio *dst, struct folio *src)\n{\n\tlong i = 0;\n\tlong nr = folio_nr_pages(src);\n\n"
)
_MC_FUNCTION = (
    "int folio_mc_copy(struct folio *dst, struct folio *src)\n{\n\tlong nr = folio_nr_pages(src);\n\tlong i = 0;\n\n"
)
# Without highmem all pages of a folio lie one after the other in the kernel's own mapping.
_BULK = "\tif (!IS_ENABLED(CONFIG_HIGHMEM)) {\n\t\tmemcpy(folio_address(dst), folio_address(src), folio_size(src));\n"
PATCHED = Recipe(
    "patched",
    (
        Edit("mm/util.c", _FUNCTION, f"{_FUNCTION}{_BULK}\t\treturn;\n\t}}\n\n"),
        Edit("mm/util.c", _MC_FUNCTION, f"{_MC_FUNCTION}{_BULK}\t\treturn 0;\n\t}}\n\n"),
    ),
)
# Dies after its drivers are up and before it has mounted anything: no agent can say what happened.
DYING = Recipe(
    "dying",
    (Edit("init/main.c", "\tdo_basic_setup();\n", '\tdo_basic_setup();\n\tpanic("testbed: dies before init");\n'),),
)


def kernel(recipe: Recipe) -> Kernel:
    """The kernel, built if it is not there yet (the first takes minutes, each further one half a minute)."""
    folder = CACHE / "kernels" / f"{recipe.name}-{_key(recipe)}"
    if not (folder / "build-id").exists():
        with only_writer(CACHE / "kernels"):
            if not (folder / "build-id").exists():
                _build(recipe, folder)
    return Kernel(recipe.name, folder, (folder / "build-id").read_text().strip())


@contextmanager
def built_tree() -> Iterator[tuple[Path, Path]]:
    """Source and objects of the base kernel, ready for modules, and for nobody else as long as the context lasts."""
    base = kernel(BASE)
    source, objects = kernel_source(), CACHE / "obj"
    with only_writer(CACHE / "kernels"):
        if not _holds(objects, BASE):
            _make(BASE, source, objects, "modules_prepare")
            shutil.copy2(base.folder / "Module.symvers", objects / "Module.symvers")
            (objects / "state").write_text(_key(BASE))
        yield source, objects


def make_words(recipe: Recipe, source: Path, objects: Path) -> list[str]:
    """The begin of every make command, without its target."""
    words = [str(program("make")), "-s", "-C", str(source), f"O={objects}", f"-j{os.cpu_count() or 1}"]
    return [*words, f"LOCALVERSION={recipe.local_version}", f"CC={_COMPILER}", f"KCFLAGS={_FLAGS}"]


def make_environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**inherited, **_REPRODUCIBLE}


def _build(recipe: Recipe, folder: Path) -> None:
    source, objects = kernel_source(), CACHE / "obj"
    objects.mkdir(parents=True, exist_ok=True)
    # Whatever comes next, the objects are no longer what they were.
    (objects / "state").unlink(missing_ok=True)
    put_back(source, CACHE / "pristine")
    apply_edits(source, CACHE / "pristine", recipe.edits)
    try:
        _make(recipe, source, objects, "bzImage", "modules")
    finally:
        put_back(source, CACHE / "pristine")
    build_id = build_id_of_file(objects / "vmlinux")
    if not build_id:
        raise TestbedError("the kernel that was built has no build id")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _KEPT:
        shutil.copy2(objects / name, folder / Path(name).name)
    (objects / "state").write_text(_key(recipe))
    (folder / "build-id").write_text(f"{build_id}\n")


def _make(recipe: Recipe, source: Path, objects: Path, *targets: str) -> None:
    words, environment = make_words(recipe, source, objects), make_environment()
    # All kernels have one configuration: what it was made of is known once it is made.
    made_of = f"{version_file().read_text()}{_compiler_version()}\n{FRAGMENT.read_text()}"
    known = objects / "configured"
    if not known.exists() or known.read_text() != made_of:
        known.unlink(missing_ok=True)
        shutil.copy2(FRAGMENT, objects / "fragment")
        run([*words, "allnoconfig"], env={**environment, "KCONFIG_ALLCONFIG": str(objects / "fragment")})
        got = set((objects / ".config").read_text().splitlines())
        lost = [line for line in FRAGMENT.read_text().splitlines() if line and line not in got]
        if lost:
            raise TestbedError(f"the kernel's configuration lost {lost}")
        known.write_text(made_of)
    run([*words, *targets], env=environment)


def _holds(objects: Path, recipe: Recipe) -> bool:
    state = objects / "state"
    return state.exists() and state.read_text() == _key(recipe)


def _key(recipe: Recipe) -> str:
    if not version_file().exists():
        kernel_source()
    parts = [
        version_file().read_text(),
        FRAGMENT.read_text(),
        recipe.local_version,
        repr(recipe.edits),
        _FLAGS,
        _compiler_version(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _compiler_version() -> str:
    return run([program(_COMPILER), "--version"]).splitlines()[0]
