"""When a build's time begins, and how long its files are its own."""

import io
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_agent.build.kernel import KernelBuilder
from tidemark_agent.log import Log
from tidemark_agent.system.disk import try_lock
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent.test_run import build_assignment, make_tree


def build_builder(tmp_path: Path, *, progress: Callable[[str], None] = lambda _: None) -> KernelBuilder:
    commit = make_tree(tmp_path / "tree")
    job = read_assignment(build_assignment("build-1-1", tmp_path / "tree", commit)).job
    assert isinstance(job, BuildJob)
    log = Log(io.StringIO())
    work, ccache = tmp_path / "work", tmp_path / "ccache"
    return KernelBuilder(job=job, work=work, ccache=ccache, log=log, stop=threading.Event(), progress=progress)


def test_files_of_a_build_are_its_own_until_they_are_handed_over(tmp_path: Path) -> None:
    lock = tmp_path / "work/small/lock"
    with build_builder(tmp_path).built() as outcome:
        assert (outcome.outcome, set(outcome.files)) == ("built", {"image", "config", "system-map", "log"})
        assert try_lock(lock) is None
    descriptor = try_lock(lock)
    assert descriptor is not None
    os.close(descriptor)


def test_slow_checkout_takes_nothing_from_the_kernels_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic
    late = [0.0]

    def pass_time(progress: str) -> None:
        if progress == "checking out":
            late[0] = 3600.0

    monkeypatch.setattr("tidemark_agent.build.kernel.time.monotonic", lambda: clock() + late[0])
    with build_builder(tmp_path, progress=pass_time).built() as outcome:
        assert (outcome.outcome, outcome.reason) == ("built", "")


def test_waiting_for_another_build_of_the_tree_is_no_build_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = build_builder(tmp_path)
    descriptor = try_lock(tmp_path / "work/small/lock")
    assert descriptor is not None
    clock = time.monotonic
    late = [0.0]

    def end_other_build() -> None:
        late[0] = 3600.0
        os.close(descriptor)

    monkeypatch.setattr("tidemark_agent.build.kernel.time.monotonic", lambda: clock() + late[0])
    threading.Timer(0.2, end_other_build).start()
    with builder.built() as outcome:
        assert outcome.outcome == "built"
    assert outcome.seconds < 3600
