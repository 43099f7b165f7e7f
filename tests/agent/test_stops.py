"""Whoever stops a build ends its programs first: what they say then is no verdict on the kernel, and leaves nothing."""

import contextlib
import io
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.config import PowerConfig
from tidemark_agent.errors import KilledError, StoppedError
from tidemark_agent.log import Log
from tidemark_agent.run import cycle_power
from tidemark_agent.system.process import capture
from tidemark_agent.wire.assignment import PowerJob

from scripts.build_agent import AGENTS
from tests.agent.fake_server import Lab, running_server
from tests.agent.small_tree import REF, small_build, small_tree
from tests.agent.test_run import (
    MAKEFILE,
    agent_command,
    build_assignment,
    hanging_children,
    run_agent,
    sandboxes,
    start_hanging_build,
)

STOPPED = "stopped by a controller or an operator"


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, the deepest first, as Jenkins ends them."""
    found: list[int] = []
    # Any of them may end while it is looked at.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [*descendants(int(child)), int(child)]
    return found


def tell_to_end(pids: list[int], *, pause: float = 0.0, number: int = signal.SIGTERM) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        time.sleep(pause)


@pytest.mark.parametrize(
    ("order", "pause", "late"), [("deepest", 0.0, 0.5), ("first", 0.05, 1.0), ("random", 0.02, 0.2)]
)
def test_build_whose_programs_are_ended_before_the_agent_is_no_verdict(
    tmp_path: Path, order: str, pause: float, late: float
) -> None:
    lab = Lab()
    with running_server(lab) as server, start_hanging_build(tmp_path, lab, server) as agent:
        pids = descendants(agent.pid)
        assert len(pids) >= 3
        tell_to_end({"deepest": pids, "first": pids[::-1], "random": pids[1:] + pids[:1]}[order], pause=pause)
        time.sleep(late)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 1
    assert lab.builds == {}
    assert (lab.ended["build-1-1"]["outcome"], lab.ended["build-1-1"]["reason"]) == ("stopped", STOPPED)
    assert list((tmp_path / "state/spool").glob("*.json")) == []
    assert hanging_children(tmp_path) == []


def test_build_that_fails_while_nobody_wants_it_any_more_is_no_verdict(tmp_path: Path) -> None:
    commit = small_tree(tmp_path / "tree", {"main.c": "void _start(void) { return missing; }\n"})
    lab = Lab(assignments={"build-1-1": build_assignment("build-1-1", tmp_path / "tree", commit)})
    lab.unwanted.add("build-1-1")
    assert run_agent("build-1-1", lab, tmp_path / "state").returncode == 1
    assert lab.builds == {}
    assert lab.ended["build-1-1"]["reason"] == "the server wants no more"
    assert list((tmp_path / "state/spool").glob("*.json")) == []


# Not below $(O): what the first try made is removed before the second.
ONCE = "@if test ! -e $(O)/../once; then touch $(O)/../once; sleep 600; fi && gcc"


def sleeper(agent: int) -> list[int]:
    """The build's own `sleep`, once it is there."""
    found = []
    for pid in descendants(agent):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                found.append(pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_program_that_somebody_ended_is_run_again_and_the_kernel_is_built(tmp_path: Path, number: int) -> None:
    commit = small_tree(tmp_path / "tree", {"Makefile": MAKEFILE.replace("@gcc", ONCE)})
    lab = Lab(assignments={"build-1-1": build_assignment("build-1-1", tmp_path / "tree", commit)})
    with running_server(lab) as server:
        command = agent_command("build-1-1", server, tmp_path / "state")
        with subprocess.Popen(command, cwd=AGENTS, stderr=subprocess.DEVNULL) as agent:
            end = time.monotonic() + 60
            while not (found := sleeper(agent.pid)):
                assert time.monotonic() < end, "the build did not begin"
                time.sleep(0.02)
            tell_to_end(found, number=number)
            assert agent.wait(60) == 0
    assert lab.builds["build-1"]["outcome"] == "built"


def test_kernel_that_ends_its_own_build_again_and_again_does_not_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("@gcc", "@kill -TERM $$$$; gcc")})
    assert outcome.outcome == "failed"
    assert "Terminated" in outcome.reason + outcome.log_tail


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
@pytest.mark.parametrize(
    "said", ["kill -KILL $$$$", "echo gcc: fatal error: Killed signal terminated program cc1; exit 1"]
)
def test_program_that_is_killed_again_and_again_is_no_verdict_on_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, sandbox: str
) -> None:
    """A guard of memory in user space leaves no count of whom it killed."""
    if sandbox not in sandboxes(tmp_path):
        pytest.skip("no sandbox works here")
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("@gcc", f"@{said}; gcc")}, sandbox=sandbox)
    assert (outcome.outcome, "was killed twice" in outcome.reason) == ("infrastructure", True), outcome.reason


def test_compiler_that_takes_too_long_is_the_kernels_fault_although_its_limit_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    endless = MAKEFILE.replace("@gcc", "@while :; do :; done; gcc")
    outcome = small_build(tmp_path, {"Makefile": endless}, limits={"cpu_seconds": 1})
    assert (outcome.outcome, "CPU time limit exceeded" in outcome.reason) == ("failed", True), outcome.reason


FILES = 20_000


def large_tree(root: Path) -> str:
    """The small tree with very many files beside it: git writes them for seconds."""
    commit = small_tree(root)
    lines = [f"commit {REF}", "committer t <t@example.org> 1700000000 +0000", "data 0", f"from {commit}"]
    lines += [f"M 100644 inline large/{n // 500}/{n}.c\ndata 2\n;\n" for n in range(FILES)]
    git = ["git", "-C", str(root)]
    subprocess.run([*git, "fast-import", "--quiet"], input="\n".join(lines), text=True, check=True)
    return subprocess.run([*git, "rev-parse", REF], check=True, capture_output=True, text=True).stdout.strip()


def written(source: Path) -> int:
    return sum(1 for _ in source.glob("large/*/*.c"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_checkout_that_is_stopped_in_the_middle_is_kept_and_the_agent_ends(tmp_path: Path, number: int) -> None:
    commit = large_tree(tmp_path / "tree")
    keys = ("build-1-1", "build-1-2")
    lab = Lab(assignments={key: build_assignment(key, tmp_path / "tree", commit) for key in keys})
    source = tmp_path / "state/work/small/src"
    with running_server(lab) as server:
        command = agent_command("build-1-1", server, tmp_path / "state")
        with subprocess.Popen(command, cwd=AGENTS, stderr=subprocess.DEVNULL) as agent:
            end = time.monotonic() + 60
            while not (source / "large/1").exists():
                assert time.monotonic() < end, "no file was written"
                time.sleep(0.005)
            tell_to_end(descendants(agent.pid), number=number)
            time.sleep(0.5)
            agent.send_signal(signal.SIGTERM)
            # Jenkins gives two minutes, after which it kills.
            assert agent.wait(60) == 1
    assert lab.builds == {}
    assert (lab.ended["build-1-1"]["outcome"], lab.ended["build-1-1"]["reason"]) == ("stopped", STOPPED)
    assert hanging_children(tmp_path) == []
    assert 0 < written(source) < FILES, "it was to be stopped in the middle"
    (source / ".git/kept").touch()
    assert "checkout-remade" not in run_agent("build-1-2", lab, tmp_path / "state").stderr
    assert lab.builds["build-1"]["outcome"] == "built"
    assert (source / ".git/kept").exists()


def test_power_command_that_is_ended_before_the_agent_is_no_failure_of_the_machine(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    power = PowerConfig(command=("/bin/sh", "-c", "kill -TERM $$"))
    job = PowerJob(machine="rome-1", node="rome-1", reason="hangs", timeout_seconds=30)
    with pytest.raises(StoppedError):
        cycle_power(job, power, scratch=tmp_path, log=Log(io.StringIO()), stop=stop)


@pytest.mark.parametrize("number", [15, 9])
def test_program_of_ours_that_is_killed_waits_for_the_stop_that_may_have_ended_it(tmp_path: Path, number: int) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(StoppedError):
        capture(["sh", "-c", f"kill -{number} $$"], scratch=tmp_path, timeout=30, stop=stop)


def test_guard_that_is_killed_was_killed_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.system.process._STOP_SECONDS", 0.1)
    with pytest.raises(KilledError):
        capture(["sh", "-c", "kill -9 $PPID; sleep 60"], scratch=tmp_path, timeout=30, stop=threading.Event())
