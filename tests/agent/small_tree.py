"""A tree that has just what the agent asks of a kernel, compiled with whatever compiler make is told."""

import io
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tidemark_agent.build.kernel import BuildOutcome, KernelBuilder
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent.test_run import MERGE, build_assignment

REF = "refs/tidemark/trees/small/main"
MAKEFILE = """\
allnoconfig:
\t@echo '# CONFIG_NET is not set' > $(O)/.config
olddefconfig:
\t@grep -v CONFIG_DROPPED $(O)/.config > $(O)/tmp; mv $(O)/tmp $(O)/.config
\t@echo "CONFIG_CC_VERSION_TEXT=\\"$$($(CC) --version | head -n 1)\\"" >> $(O)/.config
bzImage:
\t@mkdir -p $(O)/arch/x86/boot
\t@$(CC) -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux -x c $(CURDIR)/main.c
\t@cp $(O)/vmlinux $(O)/arch/x86/boot/bzImage
\t@echo map > $(O)/System.map
Image:
\t@mkdir -p $(O)/arch/arm64/boot
\t@$(CC) -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux -x c $(CURDIR)/main.c
\t@cp $(O)/vmlinux $(O)/arch/arm64/boot/Image
\t@echo map > $(O)/System.map
"""
FOREVER = "void _start(void) { for (;;); }\n"


def small_tree(root: Path, files: Mapping[str, str] | None = None) -> str:
    """A git repository with the small tree, `files` added or put in place of its own; its commit."""
    plain = {"Makefile": MAKEFILE, "main.c": FOREVER, "scripts/kconfig/merge_config.sh": MERGE}
    for name, text in {**plain, **(files or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "scripts/kconfig/merge_config.sh").chmod(0o755)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(root)]
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "tree"], check=True)
    subprocess.run([*git, "update-ref", REF, "HEAD"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def small_build(folder: Path, files: Mapping[str, str] | None = None, **fields: object) -> BuildOutcome:
    """Build the small tree below `folder`; the outcome's files stay as they are until the next build there."""
    commit = small_tree(folder / "tree", files)
    job = read_assignment(build_assignment("build-1-1", folder / "tree", commit, **fields)).job
    assert isinstance(job, BuildJob)
    builder = KernelBuilder(
        job=job,
        work=folder / "work",
        ccache=folder / "ccache",
        log=Log(io.StringIO()),
        stop=threading.Event(),
        progress=lambda _: None,
    )
    with builder.built() as outcome:
        return outcome
