"""A git tree that has just what the agent's builder asks of a kernel: some targets, and an image with a build id.

Its image is one that an emulator starts, and that then stands still for ever. A real kernel's tree can stand beside it.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REF = "refs/tidemark/trees/e2e/main"
REAL_REF = "refs/tidemark/trees/linux/main"
# The folder of the files that a toy has besides.
MANY = "many"
# `sleep` stands where a kernel would be compiled: long enough to be stopped, killed or restarted around.
_MAKEFILE = """\
allnoconfig:
\t@echo '# CONFIG_NET is not set' > $(O)/.config
olddefconfig:
\t@true
bzImage:
\t@echo compiling
{before}\t@sleep {seconds}
\t@mkdir -p $(O)/arch/x86/boot
\t@gcc -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux -x c $(CURDIR)/main.c
\t@gcc -c -o $(O)/image.o $(CURDIR)/image.S
\t@objcopy -O binary $(O)/image.o $(O)/arch/x86/boot/bzImage
\t@echo map > $(O)/System.map
"""
# What a build of a watched head leaves is kept, failed or not: the second finds that there was a first.
_FALLS_OVER = """\
\t@test -e $(O)/tried || { touch $(O)/tried; echo 'main.c:1:1: error: the compiler fell over, this once'; exit 1; }
"""
_FILES_IN_A_FOLDER = 200
# The header of an image by the boot protocol 2.02, and a processor that halts.
_IMAGE = """\
    .code16
    .org 0x1f1
    .byte 1
    .org 0x1fe
    .word 0xaa55
    jmp halt
    .ascii "HdrS"
    .word 0x0202
    .org 0x211
    .byte 1
    .org 0x240
halt:
    cli
    hlt
    jmp halt
    .org 0x1000
"""
_MERGE = '#!/bin/sh\ncat "$4" "$5" > "$3/merged" && mv "$3/merged" "$3/.config"\n'


@dataclass(frozen=True)
class Toy:
    """One commit: how long its build takes, whether the first one fails, and how many files it has besides."""

    seconds: float = 0
    fails_once: bool = False
    files: int = 0


def make_tree(root: Path, toys: Sequence[Toy]) -> list[tuple[str, str]]:
    """One commit for each toy; (commit, tree) of each."""
    script = root / "scripts" / "kconfig" / "merge_config.sh"
    script.parent.mkdir(parents=True)
    script.write_text(_MERGE, encoding="utf-8")
    script.chmod(0o755)
    (root / "image.S").write_text(_IMAGE, encoding="utf-8")
    _git(root, "init", "-q")
    made = []
    for number, toy in enumerate(toys):
        makefile = _MAKEFILE.format(seconds=toy.seconds, before=_FALLS_OVER if toy.fails_once else "")
        (root / "Makefile").write_text(makefile, encoding="utf-8")
        source = f"int number = {number};\nvoid _start(void) {{ for (;;); }}\n"
        (root / "main.c").write_text(source, encoding="utf-8")
        _git(root, "add", "-A")
        if toy.files:
            _git(root, "read-tree", f"--prefix={MANY}/", _many_files(root, toy.files))
        _git(root, "commit", "-q", "-m", f"e2e: Tree {number}")
        made.append((_git(root, "rev-parse", "HEAD"), _git(root, "rev-parse", "HEAD^{tree}")))
    _git(root, "update-ref", REF, "HEAD")
    return made


def _many_files(root: Path, count: int) -> str:
    """A tree with so many files, of which the repository has but one folder: only a checkout writes them all."""
    blob = _git(root, "hash-object", "-w", "--stdin", text="one of many\n")
    names = range(_FILES_IN_A_FOLDER)
    folder = _git(root, "mktree", text="".join(f"100644 blob {blob}\t{name:03}.txt\n" for name in names))
    folders = range(count // _FILES_IN_A_FOLDER)
    return _git(root, "mktree", text="".join(f"040000 tree {folder}\t{name:03}\n" for name in folders))


def add_real(root: Path, repository: Path, head: str) -> tuple[str, str]:
    """Let the tree's repository show a commit of another one as well, without copying it; (commit, tree)."""
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{repository.resolve() / 'objects'}\n")
    _git(root, "update-ref", REAL_REF, head)
    return head, _git(root, "rev-parse", f"{head}^{{tree}}")


def _git(root: Path, *words: str, text: str | None = None) -> str:
    identity = ["-c", "user.name=Tidemark", "-c", "user.email=e2e@localhost"]
    done = subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True, input=text)
    return done.stdout.strip()
