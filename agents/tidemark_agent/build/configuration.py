"""Making .config from the base and the fragment, and looking whether it came out as it was asked for."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark_agent.build.checkout import Checkout
from tidemark_agent.build.kconfig import lost_symbols, parse_config, random_parts
from tidemark_agent.build.maker import Maker
from tidemark_agent.build.objects import put_file, take_file
from tidemark_agent.disk import open_strange
from tidemark_agent.errors import KernelError

_FRAGMENT = "tidemark.fragment"
# That of a kernel with everything in it has less than one MiB.
_LARGEST_CONFIG = 16 * 1024**2
_MOST_NAMED: Final = 20
# The release must not depend on which commit was checked out or whether git is there: one tree hash, one kernel.
_FIXED: Final = "\n# CONFIG_LOCALVERSION_AUTO is not set\n"
_COMPILER_TEXT: Final = "CONFIG_CC_VERSION_TEXT"


@dataclass(frozen=True)
class Configuration:
    """The configuration of one build; `copy` is where its .config is kept for the agent's own eyes."""

    maker: Maker
    checkout: Checkout
    compiler_version: str
    copy: Path

    def make(self) -> str:
        """Make .config anew; its text, checked.

        Any file of a tree may decide about it (defconfigs, Makefiles, programs that Kconfig starts), so none that an
        earlier commit left is taken for this one's. Where it came out the same, it keeps its time: kbuild then has
        nothing to do for it.
        """
        objects = self.maker.objects
        before, written = _kept(objects, ".config")
        put_file(objects, ".config", "")
        put_file(objects, _FRAGMENT, self._fragment)
        self.maker.make(self.maker.job.config_base)
        self.maker.merge_fragment(_FRAGMENT)
        self.maker.make("olddefconfig")
        take_file(objects, ".config", self.copy, largest=_LARGEST_CONFIG)
        if before and self.copy.read_bytes() == before:
            os.utime(objects / ".config", ns=(written, written), follow_symlinks=False)
        text = self.copy.read_text(encoding="utf-8", errors="replace")
        self._check(text)
        return text

    @property
    def _fragment(self) -> str:
        return self.maker.job.fragment + _FIXED

    def _check(self, text: str) -> None:
        lost = lost_symbols(self._fragment, text)
        if lost:
            known = self.checkout.known_symbols(self.maker.job.commit, list(lost))
            told = [
                f"{symbol}={how}" + ("" if symbol in known else ", a symbol that this tree does not have")
                for symbol, how in lost.items()
            ]
            raise KernelError(f"config symbols not kept: {', '.join(told[:_MOST_NAMED])}")
        used = parse_config(text).get(_COMPILER_TEXT, "").strip('"')
        # Kbuild leaves out the number sign.
        if used and used[: len(self.compiler_version)] != self.compiler_version.replace("#", "").replace('"', ""):
            raise KernelError(f"the tree compiles with {used[:200]}, not with {self.compiler_version}")
        if parts := random_parts(text):
            self.maker.note(f"tidemark: no two builds of this kernel are the same, because of {', '.join(parts)}")


def _kept(objects: Path, name: str) -> tuple[bytes, int]:
    """What the last build left, and when (ns) it was written; nothing of whatever no honest build leaves there."""
    try:
        with open_strange(objects, name) as file:
            found = os.fstat(file.fileno())
            return (file.read(), found.st_mtime_ns) if found.st_size <= _LARGEST_CONFIG else (b"", 0)
    except OSError:
        return b"", 0
