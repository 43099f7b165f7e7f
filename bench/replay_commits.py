"""Commits of the replay in the mirror, whose files name what they hold."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from bench.replay_kernels import PATCH, STUDY, Kernel, kernel_of
from bench.replay_rows import Study
from server.sources.mirror import mirror

_WHO = {"GIT_AUTHOR_NAME": "Ada Author", "GIT_AUTHOR_EMAIL": "ada@example.org"}
_WHEN = "1793534400 +0000"


def git(*arguments: str, stdin: str = "") -> str:
    """Git in the mirror, for making what a real site fetches and applies."""
    committer = {name.replace("AUTHOR", "COMMITTER"): value for name, value in _WHO.items()}
    when = {"GIT_AUTHOR_DATE": _WHEN, "GIT_COMMITTER_DATE": _WHEN}
    done = subprocess.run(
        ["git", *arguments],
        cwd=mirror().git_dir,
        input=stdin,
        env={**os.environ, **_WHO, **committer, **when},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(study: Study, patches: Sequence[int], message: str, parent: str = "") -> str:
    """A commit whose files name the study and the patches that it holds."""
    empty = git("hash-object", "-w", "--stdin")
    names = [f"{STUDY}{study.name}", *(f"{PATCH}{index:02}" for index in patches)]
    tree = git("mktree", stdin="".join(f"100644 blob {empty}\t{name}\n" for name in sorted(names)))
    return git("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", message)


def held_by(build: Mapping[str, Any]) -> Kernel:
    """What the commit of a build's order holds."""
    return kernel_of(git("ls-tree", "--name-only", build["commit"]).splitlines())
