"""A small arm64 kernel of the demo's tree, cross-built by the agent, then booted and measured by it in the emulator."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import find_benchmark

from demo.processes import git, only_writer
from demo.source import KernelTree, ensure_tree
from scripts.build_agent import AGENTS
from tests.agent.fake_server import Lab, running_server
from tests.agent.test_run import agent_command, build_assignment, session_assignment
from tests.compiler_cache import compiler_cache

pytestmark = pytest.mark.real(minutes=5)
ROOT = Path(__file__).resolve().parents[2]
# What a watched tree's ref is called in the mirror: of other commits the agent lets ccache keep nothing.
REF = "refs/tidemark/trees/small/main"
FRAGMENT = Path(__file__).with_name("arm64.config")
_SECONDS = 900


def say(_text: str) -> None:
    """How the tree comes into being is nobody's business here."""


@pytest.fixture
def tree() -> KernelTree:
    cache = ROOT / ".cache" / "demo"
    with only_writer(cache, say):
        tree = ensure_tree(cache, say)
        git(tree.repository, "update-ref", REF, tree.head)
    return tree


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The agent's folder. The checkout, more than a gigabyte of small files, stays for the next time."""
    source = ROOT / ".cache" / "arm64-source"
    source.mkdir(parents=True, exist_ok=True)
    (tmp_path / "state/work/small").mkdir(parents=True)
    (tmp_path / "state/work/small/src").symlink_to(source)
    yield tmp_path / "state"
    shutil.rmtree(tmp_path / "state", ignore_errors=True)


def run_agent(key: str, lab: Lab, state: Path) -> None:
    environment = {**os.environ, **compiler_cache(state.parent / "ccache")}
    with running_server(lab) as server:
        command = agent_command(key, server, state)
        subprocess.run(command, cwd=AGENTS, env=environment, capture_output=True, check=False, timeout=_SECONDS)


def test_arm64_kernel_is_cross_built_booted_and_measured(tree: KernelTree, state: Path) -> None:
    build = build_assignment(
        "build-1-1",
        tree.repository,
        tree.head,
        ref=REF,
        arch="arm64",
        compiler="gcc",
        family="gcc",
        cross_compile="aarch64-linux-gnu-",
        fragment=FRAGMENT.read_text(),
        jobs=os.cpu_count() or 1,
        timeout_seconds=_SECONDS,
        sandbox="bwrap",
    )
    lab = Lab(assignments={"build-1-1": build})
    run_agent("build-1-1", lab, state)
    built = lab.builds["build-1"]
    assert (built["outcome"], built["reason"], built["first_error"]) == ("built", "", "")
    assert built["compiler_version"].startswith("aarch64-linux-gnu-gcc ")
    image = next(artifact["sha256"] for artifact in built["artifacts"] if artifact["kind"] == "image")
    # As boot loaders of arm64 know an image.
    assert lab.artifacts[image][56:60] == b"ARM\x64"

    case = {
        "benchmark": "mm-basic",
        "version": find_benchmark("mm-basic").version,
        "case": "fault-4k",
        "runs": 2,
        "warmup": 1,
        "timeout_seconds": 60,
        "metrics": ["time"],
    }
    kernels = {"base": {"image": image, "build_id": built["build_id"]}}
    session = session_assignment(
        "session-1-1",
        arch="arm64",
        options={"cpu": "cortex-a72"},
        kernels=kernels,
        boots=[{"position": number, "arm": "base"} for number in range(2)],
        cases=[case],
        boot_timeout_seconds=120,
    )
    lab.assignments["session-1-1"] = session
    run_agent("session-1-1", lab, state)
    boots = [lab.boots["session-1", position] for position in range(2)]
    assert [(boot["outcome"], boot["reason"]) for boot in boots] == [("measured", "")] * 2
    assert all(boot["build_id"] == built["build_id"] for boot in boots)
    assert boots[0]["boot_id"] != boots[1]["boot_id"]
    values = [boot["measurements"][0]["values"] for boot in boots]
    # Instructions are counted, so two boots of one kernel give the same.
    assert values[0] == values[1]
    assert boots[0]["facts"]["arch"] == "aarch64"
