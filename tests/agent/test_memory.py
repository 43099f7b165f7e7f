"""Memory that no process's size shows: who counts it, and who refuses to build where nobody does."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.guard import cgroup
from tidemark_agent.guard.orders import Orders
from tidemark_agent.system.process import MIB, Finished, Limits, run
from tidemark_agent.system.sandbox import Sandbox
from tidemark_agent.wire.assignment import BuildJob, read_assignment

from tests.agent.small_tree import small_build
from tests.agent.test_run import build_assignment

# Three processes, each of which keeps some 40 MiB in buffers of its sockets and is itself small.
SOCKETS = """
import os, socket, time
for _ in range(2): os.fork()
kept = []
for _ in range(100):
    for end in kept.extend(socket.socketpair()) or kept[-2:]:
        end.setblocking(False)
        try:
            while True: end.send(b"x" * 65536)
        except OSError: pass
time.sleep(3)
"""
FILES = """
import os
made = 0
try:
    while made < 5000:
        open(f"{PLACE}/{made}", "w").close()
        made += 1
except OSError as error:
    print(error)
print(made, "files")
"""


def limited(script: str, folder: Path, limits: Limits) -> Finished:
    words = [sys.executable, "-c", script]
    return run(words, output=folder / "out", timeout=30, stop=threading.Event(), limits=limits, directory=folder)


@pytest.mark.skipif(bool(cgroup.memory_trouble()), reason="no memory cgroup can be made here")
def test_buffers_of_sockets_count_as_memory(tmp_path: Path) -> None:
    done = limited(SOCKETS, tmp_path, Limits(memory_bytes=96 * MIB, processes=50))
    assert done.over == "it took more than 96 MiB of memory, which are allowed"
    assert not done.over_is_ours


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])  # noqa: S108 (the sandbox's own)
def test_files_in_memory_are_limited_in_number(tmp_path: Path, place: str) -> None:
    script = FILES.replace("{PLACE}", place)
    words = Sandbox(temporary_mb=16, environment={"PATH": "/usr/bin"}).wrap(["python3", "-c", script])
    run(words, output=tmp_path / "out", timeout=30, stop=threading.Event())
    assert "No space left on device" in (tmp_path / "out").read_text()


def made_up_cgroups(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in place of the kernel's, with the agent in the group /unit/agent."""
    monkeypatch.setattr(cgroup, "_MOUNT", str(root))
    monkeypatch.setattr(cgroup, "_path_of", lambda _pid, controller="": "" if controller else "/unit/agent")
    (root / "unit/agent").mkdir(parents=True)


def test_build_gets_a_group_of_its_own_where_the_kernel_lets_the_agent_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the leaf in which the agent sits."""
    made_up_cgroups(tmp_path, monkeypatch)
    path = tmp_path / f"unit/tidemark-{os.getpid()}"
    orders = Orders(["lifeline=0", "report=0", f"memory={64 * MIB}", "processes=99", "--", "true"])
    (tmp_path / "unit/cgroup.subtree_control").write_text("pids\n")
    assert cgroup.own_group(orders).memory == ""
    (tmp_path / "unit/cgroup.subtree_control").write_text("memory pids\n")
    real_mkdir = Path.mkdir

    def mkdir(folder: Path, *words: Any, **options: Any) -> None:
        real_mkdir(folder, *words, **options)
        if folder == path:
            for name in ("memory.max", "pids.max", "memory.events", "pids.events"):
                (folder / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = cgroup.own_group(orders)
    assert (group.memory, group.processes, group.counts_processes) == (str(path), str(path), True)
    assert [(path / name).read_text() for name in ("memory.max", "pids.max")] == [str(64 * MIB), "99"]
    assert group.look(orders) is None
    (path / "memory.events").write_text("max 3\noom 0\noom_kill 1\n")
    over = group.look(orders)
    assert over is not None
    assert over.is_ours, "others took the memory around it"
    (path / "memory.events").write_text("max 3\noom 1\noom_kill 1\n")
    over = group.look(orders)
    assert over is not None
    assert not over.is_ours
    assert "64 MiB of memory" in over.reason
    (path / "memory.events").write_text("")
    (path / "pids.events").write_text("max 1\n")
    for peak, is_ours in ((98, True), (99, False)):
        (path / "pids.peak").write_text(f"{peak}\n")
        over = group.look(orders)
        assert over is not None
        assert over.is_ours is is_ours


def test_limit_on_the_agents_own_unit_or_container_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_cgroups(tmp_path, monkeypatch)
    (tmp_path / "unit/agent/memory.max").write_text("max\n")
    assert "may make no memory cgroup" in cgroup.memory_trouble()
    (tmp_path / "unit/memory.max").write_text(f"{512 * MIB}\n")
    assert cgroup.memory_trouble() == ""
    (tmp_path / "unit/memory.max").write_text(f"{2**50}\n")
    assert "may make no memory cgroup" in cgroup.memory_trouble(), "more than any host has is no limit"


def test_command_that_is_killed_by_the_limit_around_the_agent_is_not_blamed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build may have filled it."""
    made_up_cgroups(tmp_path, monkeypatch)
    (tmp_path / "unit/memory.max").write_text(f"{512 * MIB}\n")
    (tmp_path / "unit/memory.events").write_text("max 9\noom_kill 4\n")
    orders = Orders(["lifeline=0", "report=0", f"memory={64 * MIB}", "processes=99", "--", "true"])
    group = cgroup.own_group(orders)
    assert group.look(orders) is None, "what was killed before is not its own"
    (tmp_path / "unit/memory.events").write_text("max 9\noom_kill 5\n")
    over = group.look(orders)
    assert over is not None
    assert over.is_ours
    assert over.reason == "the limit on the memory of all that the agent starts here was reached"
    group.remove()


def test_refusals_of_all_groups_around_the_agent_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_cgroups(tmp_path, monkeypatch)
    assert cgroup.refused_around() == 0
    (tmp_path / "unit/agent/pids.events").write_text("max 3\n")
    (tmp_path / "unit/memory.events").write_text("low 0\nmax 100\noom 40\noom_kill 0\n")
    assert cgroup.refused_around() == 43
    (tmp_path / "unit/memory.events.local").write_text("max 9\noom 5\n")
    assert cgroup.refused_around() == 8, "a group below it that came to its own limit took nothing from others"
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids/pids.events").write_text("max 1\n")
    assert cgroup.refused_around() == 9


def test_limit_of_the_older_cgroups_counts_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_cgroups(tmp_path, monkeypatch)
    (tmp_path / "memory").mkdir(mode=0o500)
    (tmp_path / "memory/memory.stat").write_text(f"cache 0\nhierarchical_memory_limit {2**63 - 4096}\n")
    assert cgroup.enclosing_limit() == 0
    (tmp_path / "memory/memory.stat").write_text(f"cache 0\nhierarchical_memory_limit {256 * MIB}\n")
    assert cgroup.enclosing_limit() == 256 * MIB


def test_kernel_that_does_not_count_its_own_memory_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cgroup._read
    words = "quiet cgroup.memory=nosocket,nokmem\n"
    monkeypatch.setattr(cgroup, "_read", lambda path: words if path == "/proc/cmdline" else real(path))
    assert "nokmem" in cgroup.memory_trouble()


def test_build_without_a_memory_cgroup_is_refused_before_anything_of_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.system.process.memory_trouble", lambda: "there is none")
    ran = tmp_path / "ran"
    outcome = small_build(tmp_path, {"Makefile": f"$(shell touch {ran})\n"}, cgroup="required")
    assert (outcome.outcome, outcome.unfit) == ("infrastructure", True)
    assert outcome.reason.startswith("no limit on memory would hold other people's code: there is none; set Memory")
    assert not ran.exists()


def test_operator_alone_may_say_that_a_build_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.system.process.memory_trouble", lambda: "there is none")
    outcome = small_build(tmp_path, {}, cgroup="optional")
    assert (outcome.outcome, outcome.unfit, outcome.reason) == ("built", False, "")


def test_order_that_says_nothing_of_cgroups_asks_for_one() -> None:
    about = build_assignment("build-1-1", Path("/tree"), "1" * 40)
    del about["build"]["cgroup"]
    job = read_assignment(about).job
    assert isinstance(job, BuildJob)
    assert job.needs_cgroup
