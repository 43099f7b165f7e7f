"""Which programs make a kernel, as kbuild is told: gcc or clang, for this machine's architecture or for another.

gcc needs a compiler of its own for each architecture (CROSS_COMPILE names the prefix of all its programs). One clang
serves all of them: kbuild gives it --target, and takes linker and tools from LLVM, too (LLVM=1, or LLVM=-16 for those
of one version).
"""

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.wire.assignment import BuildJob

_CLANG: Final = re.compile(r"clang(-[0-9]{1,3}(?:\.[0-9]{1,3})?)?")


@dataclass(frozen=True)
class Architecture:
    """`target` is what make is asked for, `image` what it leaves in the object directory."""

    name: str
    target: str
    image: str


_ARCHITECTURES: Final = (
    Architecture("x86_64", "bzImage", "arch/x86/boot/bzImage"),
    Architecture("arm64", "Image", "arch/arm64/boot/Image"),
)


def architecture(name: str) -> Architecture:
    """Raises InfrastructureError for one that this agent cannot build for."""
    for known in _ARCHITECTURES:
        if known.name == name:
            return known
    raise InfrastructureError(f"this agent cannot build for {name}")


@dataclass(frozen=True)
class Toolchain:
    """The programs of one build; `compiler` is the one that really compiles, prefix and version included."""

    arch: str
    family: str
    compiler: str
    linker: str
    prefix: str
    llvm: str

    def make_words(self) -> list[str]:
        """What make's command line says about the compiler. ccache only saves time, so it may be missing."""
        compiler = f"ccache {self.compiler}" if shutil.which("ccache") else self.compiler
        words = [f"ARCH={self.arch}", f"CC={compiler}"]
        if self.llvm:
            words.append(f"LLVM={self.llvm}")
        if self.prefix:
            # Trees before 5.15 take clang's --target from it.
            words.append(f"CROSS_COMPILE={self.prefix}")
        return words

    @property
    def programs(self) -> tuple[str, ...]:
        """What must be there before anything is compiled: a missing program is never the kernel's fault."""
        return (self.compiler, self.linker)

    @property
    def assembler(self) -> str:
        """Where it is, if the compiler starts a program for that; "" where there is none."""
        return "" if self.llvm else shutil.which(f"{self.prefix}as") or ""

    def fingerprint(self) -> str:
        """Changes when one of the programs is replaced: what another one made is not to be built on."""
        found = []
        for program in (*self.programs, self.assembler):
            path = Path(shutil.which(program) or program).resolve()
            stat = path.stat() if path.is_file() else None
            found.append((str(path), stat and (stat.st_size, stat.st_mtime_ns)))
        return hashlib.sha256(repr(found).encode()).hexdigest()


def toolchain_of(job: BuildJob) -> Toolchain:
    """The programs that a build asks for; raises InfrastructureError when they do not go together."""
    if job.family == "clang":
        named = _CLANG.fullmatch(job.compiler)
        if named is None:
            raise InfrastructureError(f"the compiler {job.compiler} is no clang or clang-VERSION")
        version = named[1] or ""
        return Toolchain(job.arch, "clang", job.compiler, f"ld.lld{version}", job.cross_compile, version or "1")
    bare = job.compiler.removeprefix(job.cross_compile)
    prefix = job.cross_compile
    return Toolchain(job.arch, "gcc", f"{prefix}{bare}", f"{prefix}ld", prefix, "")
