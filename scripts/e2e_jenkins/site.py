"""The rows of a small lab with a git tree of toy kernels, and what stands on its two hosts: both are this one."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from django.core.management import call_command
from django.utils import timezone

from scripts.build_agent import build_agent
from server.builds.models import Build, KernelConfig, Toolchain
from server.builds.wanted import want_build
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.core.states import new_trace
from server.lab.models import Builder, Host, Machine, Microarchitecture
from server.sources.models import Branch, Revision, Tree

# A git tree that has just what the agent's builder asks of a kernel: some targets, and an image with a build id.
#
# Its image is one that an emulator starts, and that then stands still for ever. A real kernel's tree can stand beside
# it.

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


BENCHMARKS = Path(__file__).resolve().parents[2] / "agents" / "benchmarks"
_SHIM = """\
#!/bin/sh
# The agent of whichever node this is; each has a configuration of its own.
command=$1 key=$2
for script; do :; done
exec {python} {program} "$command" "$key" --config {folder}/"$NODE_NAME".toml \\
    --job "$JOB_NAME" --number "$BUILD_NUMBER" --node "$NODE_NAME" --script "$script"
"""


@dataclass(frozen=True)
class Site:
    """The lab of one run. `agent` is the program that its jobs call; `builds` are wanted one after the other."""

    builder: Builder
    machine: Machine
    agent: Path
    folder: Path
    revisions: list[Revision]
    config: KernelConfig
    toolchain: Toolchain
    # A kernel that boots, where the run has one.
    real: tuple[Revision, KernelConfig] | None = None

    def state_of(self, node: str) -> Path:
        return self.folder / "state" / node

    def token_of(self, node: str) -> Path:
        """The file with which the node's own agent proves to the service who it is."""
        return self.folder / f"{node}.token"

    def say_hello(self, node: str) -> None:
        """What the machine's own unit does when it is back in its safe kernel, and has given the canceled key up."""
        (self.state_of(node) / "lab" / "installed").unlink(missing_ok=True)
        command = [sys.executable, str(self.folder / "tidemark-agent.pyz"), "hello"]
        command += ["--config", str(self.folder / f"{node}.toml")]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    def want_real(self) -> Build | None:
        if self.real is None:
            return None
        revision, config = self.real
        return want_build(revision=revision, config=config, toolchain=self.toolchain, trace=new_trace())

    def want(self, number: int) -> Build:
        revision = self.revisions[number]
        return want_build(revision=revision, config=self.config, toolchain=self.toolchain, trace=new_trace())


@dataclass(frozen=True)
class RealKernel:
    """A kernel that boots: a bare repository, the commit in it, and its configuration's lines."""

    repository: Path
    head: str
    lines: str


def make_site(prefix: str, folder: Path, url: str, toys: Sequence[Toy], kernel: RealKernel | None = None) -> Site:
    """One builder, one machine, and a revision for each toy."""
    revisions = _revisions(folder, toys)
    config = KernelConfig.objects.create(
        name=f"{prefix}config", arch="x86_64", base="allnoconfig", fragment="CONFIG_SMP=y\n"
    )
    toolchain = Toolchain.objects.create(name=f"{prefix}gcc", compiler="gcc")
    builder = Builder.objects.create(name=f"{prefix}b", arches=["x86_64"])
    uarch = Microarchitecture.objects.create(name=f"{prefix}uarch", arch="x86_64", title="of this host")
    machine = Machine.objects.create(
        name=f"{prefix}m",
        uarch=uarch,
        config=config,
        toolchain=toolchain,
        virtual=True,
        boot_driver="qemu",
        # The toy's kernel stands still as long as it is let.
        driver_options={"cpu": "Haswell", "memory_mb": 768, "boot_timeout_seconds": 600},
        clock=Machine.Clock.INSTRUCTIONS,
        cases=["mm-basic/fault-4k"],
        health=Host.Health.GOOD,
    )
    program = folder / "tidemark-agent.pyz"
    build_agent(program)
    _host(folder, builder.name, url, ApiToken.Scope.BUILDER)
    _host(folder, machine.name, url, ApiToken.Scope.MACHINE)
    words = {"python": sys.executable, "program": str(program), "folder": str(folder)}
    shim = folder / "agent"
    shim.write_text(_SHIM.format(**{name: shlex.quote(word) for name, word in words.items()}), encoding="utf-8")
    shim.chmod(0o755)
    real = _real(prefix, folder, kernel) if kernel is not None else None
    return Site(builder, machine, shim, folder, revisions, config, toolchain, real)


def _revisions(folder: Path, toys: Sequence[Toy]) -> list[Revision]:
    tree = Tree.objects.create(name="e2e", url=str(folder / "tree"))
    made = make_tree(folder / "tree", toys)
    revisions = [_revision(tree, *each, f"e2e: Tree {number}") for number, each in enumerate(made)]
    # A watched head: builders keep what its build leaves.
    Branch.objects.create(tree=tree, name="main", head=revisions[-1])
    return revisions


def _real(prefix: str, folder: Path, kernel: RealKernel) -> tuple[Revision, KernelConfig]:
    call_command("load_benchmarks", BENCHMARKS, stdout=StringIO())
    tree = Tree.objects.create(name="linux", url=str(kernel.repository))
    made = add_real(folder / "tree", kernel.repository, kernel.head)
    config = KernelConfig.objects.create(name=f"{prefix}lean", arch="x86_64", base="allnoconfig", fragment=kernel.lines)
    return _revision(tree, *made, "A kernel that boots"), config


def _revision(tree: Tree, sha: str, tree_sha: str, subject: str) -> Revision:
    return Revision.objects.create(
        tree=tree,
        sha=sha,
        tree_sha=tree_sha,
        subject=subject,
        author="Tidemark <e2e@localhost>",
        committed_at=timezone.now(),
        foreign=False,
    )


def _host(folder: Path, node: str, url: str, scope: ApiToken.Scope) -> None:
    """Token and configuration of one node's agent; see Site.token_of."""
    token = folder / f"{node}.token"
    token.touch(mode=0o600)
    token.write_text(issue_token(name=f"{scope} {node}", scope=scope, subject=node), encoding="ascii")
    state = folder / "state" / node
    state.mkdir(parents=True)
    lines = [f'server = "{url}"', f'token_file = "{token}"', f'state_dir = "{state}"']
    (folder / f"{node}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
