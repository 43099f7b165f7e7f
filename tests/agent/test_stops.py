"""Whoever stops a build ends its programs first: what they say then is no verdict on the kernel, and leaves nothing."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from scripts.build_agent import AGENTS
from tests.agent.fake_server import Lab, running_server
from tests.agent.small_tree import small_build, small_tree
from tests.agent.test_run import (
    MAKEFILE,
    agent_command,
    build_assignment,
    hanging_children,
    run_agent,
    start_hanging_build,
)

STOPPED = "stopped by Jenkins or an operator"


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, the deepest first, as Jenkins ends them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [*descendants(int(child)), int(child)]
    return found


def tell_to_end(pids: list[int], *, pause: float = 0.0) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
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
    assert (lab.ended["build-1-1"]["outcome"], lab.ended["build-1-1"]["reason"]) == ("failed", STOPPED)
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
    names = {pid: Path(f"/proc/{pid}/comm") for pid in descendants(agent)}
    return [pid for pid, name in names.items() if name.exists() and name.read_text().strip() == "sleep"]


def test_program_that_somebody_ended_is_run_again_and_the_kernel_is_built(tmp_path: Path) -> None:
    commit = small_tree(tmp_path / "tree", {"Makefile": MAKEFILE.replace("@gcc", ONCE)})
    lab = Lab(assignments={"build-1-1": build_assignment("build-1-1", tmp_path / "tree", commit)})
    with running_server(lab) as server:
        command = agent_command("build-1-1", server, tmp_path / "state")
        with subprocess.Popen(command, cwd=AGENTS, stderr=subprocess.DEVNULL) as agent:
            end = time.monotonic() + 60
            while not (found := sleeper(agent.pid)):
                assert time.monotonic() < end, "the build did not begin"
                time.sleep(0.02)
            tell_to_end(found)
            assert agent.wait(60) == 0
    assert lab.builds["build-1"]["outcome"] == "built"


def test_kernel_that_ends_its_own_build_again_and_again_does_not_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.process._STOP_SECONDS", 0.1)
    outcome = small_build(tmp_path, {"Makefile": MAKEFILE.replace("@gcc", "@kill -TERM $$$$; gcc")})
    assert outcome.outcome == "failed"
    assert "Terminated" in outcome.reason + outcome.log_tail
