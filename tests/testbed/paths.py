"""Where the testbed keeps what is slow to make; nothing of it is in the repository."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "testbed"
_TAIL = 2000


class TestbedError(Exception):
    """The testbed itself does not work: says which program failed and its last words."""

    # Not a class of tests, though its name begins like one.
    __test__ = False


def run(words: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a program to its end; its stdout. A failure becomes a TestbedError with the end of what it said."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-_TAIL:]
        raise TestbedError(f"`{' '.join(command[:5])}` ended with {done.returncode}: {said}")
    return done.stdout


def program(name: str) -> Path:
    """An installed program; those for administrators are found for everybody."""
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise TestbedError(f"{name} is not installed: `make test` installs it (scripts/setup.sh --test)")
    return Path(found)
