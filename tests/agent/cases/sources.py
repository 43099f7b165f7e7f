"""A made-up kernel source: its Makefile takes the same targets, and needs no time."""

import importlib
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from scripts.build_agent import AGENTS

MAKEFILE = """
tinyconfig:
\t@test -d $(O) && echo tiny > $(O)/.config
vmlinux:
\t@test "$$(cat $(O)/.config)" = tiny && test ! -e $(O)/vmlinux
\t@i=0; while [ $$i -lt 30000 ]; do i=$$((i+1)); done; cp .config.in $(O)/vmlinux
\t@dd if=/dev/zero of=/dev/null bs=64k count=20000 2>/dev/null; sleep 0.2
broken:
\t@echo "mm/memory.c:1: error: expected ';'"; exit 2
"""


def kernel_archive(folder: Path) -> Path:
    """An archive with one top folder, like those of kernel releases."""
    tree = folder / "linux-made-up"
    tree.mkdir()
    (tree / "Makefile").write_text(MAKEFILE)
    (tree / ".config.in").write_text("kernel\n")
    path = folder / "linux-made-up.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tree, tree.name)
    return path


def script(benchmark: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of a benchmark as a module, with the files that it shares beside it."""
    for folder in ("kernel-compile", benchmark):
        monkeypatch.syspath_prepend(str(AGENTS / "benchmarks" / folder))
    name = benchmark.replace("-", "_")
    for module in (name, "kernel_tree"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module(name)
