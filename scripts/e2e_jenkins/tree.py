"""A git tree that has just what the agent's builder asks of a kernel: some targets, and an image with a build id.

Its image is one that an emulator starts, and that then stands still for ever. A real kernel's tree can stand beside it.
"""

import subprocess
from pathlib import Path

REF = "refs/tidemark/trees/e2e/main"
REAL_REF = "refs/tidemark/trees/linux/main"
# `sleep` stands where a kernel would be compiled: long enough to be stopped, killed or restarted around.
_MAKEFILE = """\
allnoconfig:
\t@echo '# CONFIG_NET is not set' > $(O)/.config
olddefconfig:
\t@true
bzImage:
\t@echo compiling
\t@sleep {seconds}
\t@mkdir -p $(O)/arch/x86/boot
\t@gcc -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux -x c $(CURDIR)/main.c
\t@gcc -c -o $(O)/image.o $(CURDIR)/image.S
\t@objcopy -O binary $(O)/image.o $(O)/arch/x86/boot/bzImage
\t@echo map > $(O)/System.map
"""
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


def make_tree(root: Path, seconds: list[float]) -> list[tuple[str, str]]:
    """One commit for each number of seconds that its build takes; (commit, tree) of each."""
    script = root / "scripts" / "kconfig" / "merge_config.sh"
    script.parent.mkdir(parents=True)
    script.write_text(_MERGE, encoding="utf-8")
    script.chmod(0o755)
    (root / "image.S").write_text(_IMAGE, encoding="utf-8")
    _git(root, "init", "-q")
    made = []
    for number, each in enumerate(seconds):
        (root / "Makefile").write_text(_MAKEFILE.format(seconds=each), encoding="utf-8")
        source = f"int number = {number};\nvoid _start(void) {{ for (;;); }}\n"
        (root / "main.c").write_text(source, encoding="utf-8")
        _git(root, "add", "-A")
        _git(root, "commit", "-q", "-m", f"e2e: Tree {number}")
        made.append((_git(root, "rev-parse", "HEAD"), _git(root, "rev-parse", "HEAD^{tree}")))
    _git(root, "update-ref", REF, "HEAD")
    return made


def add_real(root: Path, repository: Path, head: str) -> tuple[str, str]:
    """Let the tree's repository show a commit of another one as well, without copying it; (commit, tree)."""
    (root / ".git" / "objects" / "info" / "alternates").write_text(f"{repository.resolve() / 'objects'}\n")
    _git(root, "update-ref", REAL_REF, head)
    return head, _git(root, "rev-parse", f"{head}^{{tree}}")


def _git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=Tidemark", "-c", "user.email=e2e@localhost"]
    done = subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()
