"""CONFIG_ lines, and benchmark modules built with a kernel."""

import gzip
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark_agent.benchmarks.bundle import Benchmark, benchmark_names, find_benchmark
from tidemark_agent.build.maker import EndedError, Maker
from tidemark_agent.build.objects import LARGEST_ARTIFACT, take_file
from tidemark_agent.errors import KernelError
from tidemark_agent.system.disk import remove_tree

_SET = re.compile(r"(CONFIG_\w+)=(.*)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")
# What draws random numbers while a kernel is built. Keys of modules: only where the tree makes them itself.
_RANDOM: Final = {
    "CONFIG_RANDSTRUCT": "y",
    "CONFIG_GCC_PLUGIN_RANDSTRUCT": "y",
    "CONFIG_MODULE_SIG_KEY": '"certs/signing_key.pem"',
}


def parse_config(text: str) -> dict[str, str]:
    """Symbol to value, as .config writes values; a symbol that is said to be unset has "n". The last line wins."""
    symbols: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if match := _SET.fullmatch(line):
            symbols[match[1]] = match[2]
        elif match := _UNSET.fullmatch(line):
            symbols[match[1]] = "n"
    return symbols


def lost_symbols(fragment: str, config: str) -> dict[str, str]:
    """The symbols of `fragment` whose value `config` does not have, each with `wanted (has ...)`."""
    have = parse_config(config)
    lost = {}
    for symbol, wanted in parse_config(fragment).items():
        found = have.get(symbol, "n")
        if found != wanted:
            lost[symbol] = f"{wanted} (has {found})"
    return lost


def random_parts(config: str) -> list[str]:
    """The symbols of `config` that make every build of one source a different one."""
    have = parse_config(config)
    return [symbol for symbol, value in _RANDOM.items() if have.get(symbol) == value]


# The modules of a kernel: its own, and those of the benchmarks, compiled against it. One archive for both.
#
# The archive is a gzipped tar file with `lib/modules/RELEASE/...` and `tidemark/NAME-VERSION.ko`, where NAME and
# VERSION are those of the benchmark's program and of its files. The same kernel gives the same bytes.

MODULES_TARGET: Final = "modules"
_INSTALLED: Final = "tidemark-installed"
_BENCHMARKS: Final = "tidemark-benchmarks"
# A distribution's whole set of stripped modules is well below this; a build that leaves more is broken or hostile.
_LARGEST_TOTAL: Final = 2 * 1024**3
_MOST_FILES: Final = 50_000
# Longer ones cannot be opened by their path.
_LONGEST_PATH: Final = 4096
# As the machines take them.
_DEEPEST: Final = 32
# A kernel with everything in it exports some ten thousand names, which is a few MiB.
_LARGEST_SYMBOLS: Final = 64 * 1024**2
_LONGEST_LINE: Final = 4096
# A source that can do with or without a function of the kernel asks `#ifdef TIDEMARK_HAS_FOLIO_COPY`.
_ASKED: Final = re.compile(rb"\bTIDEMARK_HAS_([A-Z0-9_]+)\b")


def has_modules(config: str) -> bool:
    """Whether a kernel of this configuration can load modules."""
    return parse_config(config).get("CONFIG_MODULES") == "y"


@dataclass(frozen=True)
class ModuleArchive:
    """Makes the archive from an object directory in which the kernel and its own modules are built already."""

    maker: Maker
    scratch: Path

    def write(self, target: Path) -> None:
        """Install, compile and pack into `target`; raises KernelError when the kernel's own part fails."""
        objects = self.maker.objects
        _make_anew(objects / _INSTALLED)
        self.maker.make("modules_install", f"INSTALL_MOD_PATH={self.maker.inside(_INSTALLED)}", "INSTALL_MOD_STRIP=1")
        places = {place: f"{_INSTALLED}/{place}" for place in _plain_files(objects / _INSTALLED, "lib/modules")}
        self._pack(places | self._benchmark_modules(), target)
        for name in (_INSTALLED, _BENCHMARKS):
            remove_tree(objects / name)

    def _benchmark_modules(self) -> dict[str, str]:
        """Where each benchmark's module is in the object directory, by its place in the archive."""
        benchmarks = [found for found in map(find_benchmark, benchmark_names()) if found.program.kind == "module"]
        exported = self._exported({name for benchmark in benchmarks for name in asked_names(benchmark)})
        root = self.maker.objects / _BENCHMARKS
        # All sources are written before anything is compiled: a build could put a link in the way of later ones.
        _make_anew(root)
        for benchmark in benchmarks:
            benchmark.write_files(root / benchmark.name)
            (root / benchmark.name / "Kbuild").write_text(kbuild(benchmark, exported), encoding="ascii")
        return {
            f"tidemark/{module_file(benchmark)}": f"{_BENCHMARKS}/{benchmark.name}/{benchmark.program.name}.ko"
            for benchmark in benchmarks
            if self._compile(benchmark)
        }

    def _compile(self, benchmark: Benchmark) -> bool:
        """Compile one benchmark. That it does not fit this kernel is no fault of the kernel: it is only left out."""
        try:
            self.maker.make(f"M={self.maker.inside(f'{_BENCHMARKS}/{benchmark.name}')}", MODULES_TARGET)
        except EndedError:
            raise
        except KernelError as error:
            self.maker.note(f"tidemark: benchmark {benchmark.name} is left out, it does not compile: {error}")
            return False
        return True

    def _exported(self, asked: set[str]) -> frozenset[str]:
        """Those of the `asked` names that this kernel has for modules."""
        copy = self.scratch / "module-symvers"
        take_file(self.maker.objects, "Module.symvers", copy, largest=_LARGEST_SYMBOLS)
        found = set()
        with copy.open("rb") as file:
            # A build may have written anything: neither its lines nor their number may cost the agent much.
            while line := file.readline(_LONGEST_LINE):
                found.update(asked.intersection(line.decode(errors="replace").split("\t")[1:2]))
        return frozenset(found)

    def _pack(self, places: dict[str, str], target: Path) -> None:
        copy, total = self.scratch / "module", 0
        with (
            target.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            for place in sorted(places):
                take_file(self.maker.objects, places[place], copy, largest=_LARGEST_TOTAL)
                about = tarfile.TarInfo(place)
                about.size, about.mode = copy.stat().st_size, 0o644
                total += about.size
                if total > _LARGEST_TOTAL:
                    raise KernelError(f"the modules take more than {_LARGEST_TOTAL // 1024**2} MiB")
                with copy.open("rb") as file:
                    archive.addfile(about, file)
        copy.unlink(missing_ok=True)
        if target.stat().st_size > LARGEST_ARTIFACT:
            raise KernelError(f"the modules take more than {LARGEST_ARTIFACT // 1024**2} MiB when packed")


def module_file(benchmark: Benchmark) -> str:
    """The name of the benchmark's module in the archive, and on the machine that measures."""
    return f"{benchmark.program.name}-{benchmark.version}.ko"


def kbuild(benchmark: Benchmark, exported: frozenset[str]) -> str:
    """The make file of a benchmark's module: what its sources ask about the kernel is answered here."""
    flags = " ".join(f"-DTIDEMARK_HAS_{name.upper()}" for name in sorted(asked_names(benchmark) & exported))
    return f"obj-m := {benchmark.program.name}.o\nccflags-y := {flags}\n"


def asked_names(benchmark: Benchmark) -> frozenset[str]:
    """The functions about which the benchmark's sources ask whether the kernel has them."""
    sources = (content for path, content in benchmark.files if path.endswith((".c", ".h")))
    return frozenset(name.decode().lower() for content in sources for name in _ASKED.findall(content))


def _make_anew(folder: Path) -> None:
    """An empty directory, whatever was there: what is written into it must not go through a link of the build's."""
    # Anything else is only unlinked: to look into a pipe, say, would wait for ever.
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    remove_tree(folder)
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise KernelError(f"the build left {folder.name}, which cannot be removed") from error


def _plain_files(root: Path, below: str) -> Iterator[str]:
    """Paths of the plain files in `root`/`below`, relative to `root`; links, as to the objects, are left out."""
    count = 0
    for part in (root, (root / below).parent, root / below):
        if part.is_symlink():
            raise KernelError(f"the build left a link in place of {part.relative_to(root.parent)}")
    for directory, names, files in os.walk(root / below):
        if len(Path(directory).relative_to(root).parts) >= _DEEPEST:
            raise KernelError(f"the kernel installs modules in more than {_DEEPEST} folders, one in the other")
        names.sort()
        for name in files:
            path = Path(directory, name)
            if len(os.fsencode(path)) < _LONGEST_PATH and stat.S_ISREG(path.lstat().st_mode):
                count += 1
                if count > _MOST_FILES:
                    raise KernelError(f"the kernel installs more than {_MOST_FILES} modules")
                yield path.relative_to(root).as_posix()
