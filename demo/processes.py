"""Running programs of the outside world, with errors a person can act on."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.errors import DemoError

NAME = "Tidemark Demo"
ADDRESS = "demo@tidemark.example"
IDENTITY = f"{NAME} <{ADDRESS}>"
_TAIL = 600
# No configuration of the user's may change what is made: the hashes are the same everywhere.
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": NAME,
    "GIT_AUTHOR_EMAIL": ADDRESS,
    "GIT_COMMITTER_NAME": NAME,
    "GIT_COMMITTER_EMAIL": ADDRESS,
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> str:
    """Run to the end and give stdout; a missing program or a failure becomes a DemoError with the end of stderr."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, env=env, input=stdin, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise DemoError(f"{words[0]} is not installed; `make setup` installs it") from error
    if done.returncode != 0:
        text = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise DemoError(f"`{' '.join(words[:6])}` failed ({done.returncode}): {text[-_TAIL:]}")
    return done.stdout.decode(errors="replace")


def git_environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**inherited, **_GIT_ENVIRONMENT}


def git(repository: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
    """Run git in `repository` and give its stripped stdout; `env` adds to the environment."""
    return run(["git", "-C", repository, *arguments], env={**git_environment(), **(env or {})}, stdin=stdin).strip()
