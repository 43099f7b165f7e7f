"""perf, built from the same tree as the kernel: one static program that runs on any machine of its architecture.

Left out is all that needs a library beyond the C library: scripting, the text interface, symbols of DWARF. What counts
events and runs `perf bench` stays. A tree whose perf does not build is no broken kernel: then there is none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark_agent.build.maker import EndedError, Maker
from tidemark_agent.build.objects import take_file
from tidemark_agent.errors import KernelError
from tidemark_agent.removal import remove_tree

_FOLDER: Final = "tidemark-perf"
# Stripped and static it has 4 to 12 MiB.
_LARGEST: Final = 128 * 1024**2
# Those that a tree does not know do nothing.
_WITHOUT: Final = (
    "AUXTRACE",
    "BACKTRACE",
    "BIONIC",
    "CAPSTONE",
    "CORESIGHT",
    "DEMANGLE",
    "DWARF",
    "GTK2",
    "JEVENTS",
    "JVMTI",
    "LIBAUDIT",
    "LIBBABELTRACE",
    "LIBBPF",
    "LIBCAP",
    "LIBCRYPTO",
    "LIBDEBUGINFOD",
    "LIBDW",
    "LIBDW_DWARF_UNWIND",
    "LIBELF",
    "LIBLLVM",
    "LIBNUMA",
    "LIBPERL",
    "LIBPFM4",
    "LIBPYTHON",
    "LIBTRACEEVENT",
    "LIBUNWIND",
    "LIBZSTD",
    "LZMA",
    "RUST",
    "SDT",
    "SLANG",
    "ZLIB",
)


@dataclass(frozen=True)
class PerfProgram:
    """Makes perf in a folder of its own below the object directory, so that it is as incremental as the kernel is."""

    maker: Maker
    scratch: Path

    def make(self) -> Path | None:
        """The program; None, with the reason in the build's log, where it cannot be made."""
        made = self.scratch / "perf"
        try:
            self._compile()
            take_file(self.maker.objects, f"{_FOLDER}/perf", made, largest=_LARGEST)
        except KernelError as error:
            self.maker.note(f"tidemark: there is no perf of this tree: {error}")
            if isinstance(error, EndedError):
                remove_tree(self.maker.objects / _FOLDER)
            return None
        return made

    def _compile(self) -> None:
        folder = self.maker.objects / _FOLDER
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise KernelError(f"the build left something else in place of {_FOLDER}")
        folder.mkdir(exist_ok=True)
        output = self.maker.inside(_FOLDER)
        self.maker.run_make(
            "tools/perf",
            f"O={output}",
            f"JOBS={self.maker.job.jobs}",
            "LDFLAGS=-static -s",
            "EXTRA_CFLAGS=-O2",
            "WERROR=0",
            *(f"NO_{name}=1" for name in _WITHOUT),
            f"{output}/perf",
        )
