"""The demo itself: real kernels, real boots, the running service, also under faults.

`make demo ARGS="--once --series revert"` goes the same way to an improvement and takes minutes: that its draft waits
for a person is in tests/demo/test_checks.py, an improvement of measured boots in tests/bench/test_replay.py. A kernel
that dies is in the testbed's sessions; one that does not compile in tests/e2e/test_contract.py and, as the demo tells
it, in tests/demo/test_watch.py; a series that does not apply in tests/demo/test_postings.py and, as the service tells
it, in tests/sources.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.stack import stack_remove
from tests.compiler_cache import compiler_cache
from tests.e2e.faults import FaultMaker, roles

pytestmark = pytest.mark.real(minutes=10)
ROOT = Path(__file__).resolve().parents[2]
FAULTS = 12


def environment(local: Path) -> dict[str, str]:
    """A demo of its own: nothing of the tests' servers, everything else as it is."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in {"TIDEMARK_DEBIAN_MIRROR", "TIDEMARK_BUILD_SANDBOX"} or not name.startswith(("TIDEMARK_", "DJANGO_"))
    }
    return {**kept, **compiler_cache(local.parent / "ccache"), "TIDEMARK_LOCAL": str(local)}


def run_demo(local: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo", "--once", "--minutes", "30", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment(local), capture_output=True, text=True, timeout=2400, check=False
    )


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One stack for all series of this module: they share its tree and its builds, as on a real site."""
    folder = tmp_path_factory.mktemp("demo") / "local"
    yield folder
    stack_remove(ROOT, local=folder)


def test_series_that_changes_nothing_is_unchanged_everywhere(local: Path) -> None:
    done = run_demo(local, "--series", "null")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finding: unchanged" in done.stdout


def test_slow_patch_is_found_on_the_cpus_it_slows_and_on_no_others_whatever_is_killed_on_the_way(local: Path) -> None:
    """Kill -9 of web, worker, beat and agents, and FLUSHALL: the demo's own checks count builds, boots and mails."""
    seed = int.from_bytes(os.urandom(4), "big")
    faults = FaultMaker(local=local, count=FAULTS, seconds=4.0, seed=seed, ready=lambda: is_watching(local))
    faults.start()
    try:
        done = run_demo(local)
    finally:
        faults.done.set()
        faults.join()
    story = f"seed {seed}: {faults.made}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, story
    assert "VIRTUAL, NOT EVIDENCE" in done.stdout, story
    assert len(faults.made) == FAULTS, story


def is_watching(folder: Path) -> bool:
    """Whether the service is up: the faults are for the way of the series, not for the start of the servers."""
    return (folder / "state" / "mirror.git").exists() and "beat" in roles(folder)
