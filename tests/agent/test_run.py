"""Whole attempts of the real agent process against a server that speaks the protocol."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.process import capture
from tidemark_agent.system.sandbox import Sandbox

from scripts.build_agent import AGENTS
from server.lab.dispatch import local
from tests.agent.fake_server import TOKEN, Lab, running_server

# A tree that has just what the agent asks of a kernel: three targets, the merge script, an image with a build id.
MAKEFILE = """\
allnoconfig:
\t@echo '# CONFIG_NET is not set' > $(O)/.config
olddefconfig:
\t@grep -v CONFIG_DROPPED $(O)/.config > $(O)/tmp; mv $(O)/tmp $(O)/.config
bzImage:
\t@mkdir -p $(O)/arch/x86/boot
\t@gcc -Wl,--build-id=sha1 -nostdlib -static -o $(O)/vmlinux -x c $(CURDIR)/main.c
\t@cp $(O)/vmlinux $(O)/arch/x86/boot/bzImage
\t@echo map > $(O)/System.map
"""
MERGE = '#!/bin/sh\ncat "$4" "$5" > "$3/merged" && mv "$3/merged" "$3/.config"\n'


def make_tree(root: Path, main_c: str = "void _start(void) { for (;;); }\n") -> str:
    """A git repository at `root` with the small tree; its commit."""
    (root / "scripts/kconfig").mkdir(parents=True)
    (root / "Makefile").write_text(MAKEFILE)
    (root / "main.c").write_text(main_c)
    script = root / "scripts/kconfig/merge_config.sh"
    script.write_text(MERGE)
    script.chmod(0o755)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(root)]
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "tree"], check=True)
    subprocess.run([*git, "update-ref", "refs/tidemark/trees/small/main", "HEAD"], check=True)
    said = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return said.stdout.strip()


def build_assignment(key: str, tree: Path, commit: str, **fields: Any) -> dict[str, Any]:
    config = {"name": "small", "base": "allnoconfig", "fragment": fields.pop("fragment", "CONFIG_SMP=y\n")}
    build = {
        "id": 1,
        "git_url": str(tree),
        "ref": "refs/tidemark/trees/small/main",
        "commit": commit,
        "tree": "small",
        "arch": "x86_64",
        "compiler": "gcc",
        "timeout_seconds": 120,
        "jobs": 1,
        "sandbox": "none",
        "cgroup": "optional",
        "config": config,
        **fields,
    }
    return {"kind": "build", "key": key, "trace": "t1", "lease_seconds": 3, "build": build}


def session_assignment(key: str, **fields: Any) -> dict[str, Any]:
    session = {
        "id": 1,
        "machine": "m",
        "boot_driver": "qemu",
        "virtual": True,
        "clock": "instructions",
        "options": {"cpu": "Haswell"},
        "boot_timeout_seconds": 30,
        "kernels": {"base": {"image": "0" * 64, "build_id": "00"}},
        "boots": [{"position": 0, "arm": "base"}],
        "cases": [],
        **fields,
    }
    return {"kind": "session", "key": key, "trace": "t1", "lease_seconds": 3, "session": session}


def agent_command(key: str, server: str, state: Path) -> list[str]:
    token = state.parent / "token"
    token.write_text(f"{TOKEN}\n")
    words = ["run", key, "--server", server, "--token-file", str(token), "--state-dir", str(state)]
    return [sys.executable, "-m", "tidemark_agent", *words]


def run_agent(key: str, lab: Lab, state: Path) -> subprocess.CompletedProcess[str]:
    with running_server(lab) as server:
        command = agent_command(key, server, state)
        return subprocess.run(command, cwd=AGENTS, capture_output=True, text=True, check=False, timeout=120)


def sandboxes(tmp_path: Path) -> list[str]:
    try:
        capture(Sandbox().wrap(["true"]), scratch=tmp_path, timeout=20, stop=threading.Event())
    except InfrastructureError:
        return ["none"]
    return ["none", "bwrap"]


def test_kernel_is_built_and_handed_over(tmp_path: Path) -> None:
    commit = make_tree(tmp_path / "tree")
    for number, sandbox in enumerate(sandboxes(tmp_path), start=1):
        key = f"build-{number}-1"
        lab = Lab(assignments={key: build_assignment(key, tmp_path / "tree", commit, sandbox=sandbox)})
        done = run_agent(key, lab, tmp_path / "state")
        result = lab.builds[f"build-{number}"]
        assert (done.returncode, result["outcome"], result["reason"]) == (0, "built", "")
        assert len(result["build_id"]) == 40
        assert {artifact["kind"] for artifact in result["artifacts"]} == {"image", "config", "system-map", "log"}
        assert all(len(lab.artifacts[a["sha256"]]) == a["size"] for a in result["artifacts"])
        assert lab.ended[key]["outcome"] == "done"
        assert TOKEN not in done.stderr


def test_compile_error_is_the_reason_of_a_failed_build(tmp_path: Path) -> None:
    commit = make_tree(tmp_path / "tree", "void _start(void) { return missing; }\n")
    lab = Lab(assignments={"build-1-1": build_assignment("build-1-1", tmp_path / "tree", commit)})
    done = run_agent("build-1-1", lab, tmp_path / "state")
    result = lab.builds["build-1"]
    assert (done.returncode, result["outcome"]) == (0, "failed")
    assert result["reason"].startswith("main.c:1:")
    assert "'missing' undeclared" in result["reason"]
    assert "missing" in result["log_tail"]


def test_dropped_config_symbol_fails_the_build_by_name(tmp_path: Path) -> None:
    commit = make_tree(tmp_path / "tree")
    assignment = build_assignment("build-1-1", tmp_path / "tree", commit, fragment="CONFIG_DROPPED=y\nCONFIG_NET=n\n")
    lab = Lab(assignments={"build-1-1": assignment})
    run_agent("build-1-1", lab, tmp_path / "state")
    result = lab.builds["build-1"]
    reason = "config symbols not kept: CONFIG_DROPPED=y (has n), a symbol that this tree does not have"
    assert (result["outcome"], result["reason"]) == ("failed", reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"arch": "riscv64"}, "cannot build for riscv64"),
        ({"commit": "1" * 40}, "is not in refs/tidemark/trees/small/main"),
        ({"git_url": "/nowhere/mirror.git"}, "no git repository"),
        ({"compiler": "no-such-gcc"}, "no-such-gcc"),
    ],
)
def test_builders_own_troubles_are_infrastructure(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    commit = make_tree(tmp_path / "tree")
    assignment = build_assignment("build-1-1", tmp_path / "tree", commit) | {}
    assignment["build"] |= fields
    lab = Lab(assignments={"build-1-1": assignment})
    done = run_agent("build-1-1", lab, tmp_path / "state")
    assert (done.returncode, lab.builds["build-1"]["outcome"]) == (1, "infrastructure")
    assert reason in lab.builds["build-1"]["reason"]
    assert lab.ended["build-1-1"]["outcome"] == "failed"


def test_attempt_that_another_agent_holds_is_left_alone(tmp_path: Path) -> None:
    lab = Lab(assignments={"session-1-1": session_assignment("session-1-1")}, holders={"session-1-1": "somebody"})
    done = run_agent("session-1-1", lab, tmp_path / "state")
    assert done.returncode == 0
    assert [path.rpartition("/")[2] for _, path in lab.calls] == ["claim"]


def test_unknown_attempt_is_refused(tmp_path: Path) -> None:
    assert run_agent("session-1-1", Lab(), tmp_path / "state").returncode == 3


@pytest.mark.parametrize("assignment", [{}, {"kind": "session"}, {"kind": "build", "build": {"sandbox": "bwrap"}}])
def test_senseless_assignment_ends_failed_with_its_reason(tmp_path: Path, assignment: dict[str, Any]) -> None:
    lab = Lab(assignments={"session-1-1": assignment})
    assert run_agent("session-1-1", lab, tmp_path / "state").returncode == 1
    assert "cannot be understood" in lab.ended["session-1-1"]["reason"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"boot_driver": "grub"}, "boot driver grub needs"),
        ({}, "does not give 0000"),
    ],
)
def test_session_that_cannot_begin_ends_failed(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    lab = Lab(assignments={"session-1-1": session_assignment("session-1-1", **fields)})
    assert run_agent("session-1-1", lab, tmp_path / "state").returncode == 1
    assert reason in lab.ended["session-1-1"]["reason"]
    assert lab.boots == {}


def wait_for(lab: Lab, word: str) -> None:
    end = time.monotonic() + 60
    while not any(path.endswith(word) for _, path in lab.calls):
        assert time.monotonic() < end, f"no {word}"
        time.sleep(0.02)


def start_hanging_build(tmp_path: Path, lab: Lab, server: str) -> subprocess.Popen[bytes]:
    """An agent in the middle of a build that never ends by itself."""
    make_tree(tmp_path / "tree")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(tmp_path / "tree")]
    (tmp_path / "tree/Makefile").write_text(
        f"{MAKEFILE}\n.PHONY: bzImage\n".replace("@gcc", "@touch $(O)/on; sleep 600; gcc")
    )
    subprocess.run([*git, "commit", "-q", "-a", "-m", "hang"], check=True)
    said = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    lab.assignments["build-1-1"] = build_assignment("build-1-1", tmp_path / "tree", said.stdout.strip())
    command = agent_command("build-1-1", server, tmp_path / "state")
    agent = subprocess.Popen(command, cwd=AGENTS, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not list((tmp_path / "state").rglob("obj/on")):
        assert time.monotonic() < end, "the build did not begin"
        time.sleep(0.02)
    return agent


def hanging_children(tmp_path: Path) -> list[str]:
    """Processes that work below `tmp_path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(tmp_path) in str((entry / "cwd").readlink()):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_server_that_wants_no_more_ends_the_work(tmp_path: Path) -> None:
    lab = Lab()
    with running_server(lab) as server, start_hanging_build(tmp_path, lab, server) as agent:
        lab.unwanted.add("build-1-1")
        assert agent.wait(60) == 1
    assert lab.ended["build-1-1"] == {
        "agent": lab.holders["build-1-1"],
        "outcome": "failed",
        "reason": "the server wants no more",
    }
    assert lab.builds == {}
    assert hanging_children(tmp_path) == []


def test_superseded_agent_stops_and_says_nothing(tmp_path: Path) -> None:
    lab = Lab()
    with running_server(lab) as server, start_hanging_build(tmp_path, lab, server) as agent:
        lab.holders["build-1-1"] = "another"
        assert agent.wait(60) == 0
    assert lab.ended == {}
    assert hanging_children(tmp_path) == []


def test_terminated_agent_says_so_and_takes_its_children_along(tmp_path: Path) -> None:
    lab = Lab()
    with running_server(lab) as server, start_hanging_build(tmp_path, lab, server) as agent:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 1
    assert lab.ended["build-1-1"]["reason"] == "stopped by a controller or an operator"
    assert hanging_children(tmp_path) == []


def test_second_agent_with_the_same_key_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_agents", lambda: tmp_path)
    lab = Lab()
    with running_server(lab) as server, start_hanging_build(tmp_path, lab, server) as agent:
        assert local._holder(tmp_path / "state/build-1-1.lock") == agent.pid
        calls = [path for _, path in lab.calls if path.endswith("claim")]
        command = agent_command("build-1-1", server, tmp_path / "state")
        second = subprocess.run(command, cwd=AGENTS, capture_output=True, text=True, check=False, timeout=60)
        assert (second.returncode, "already-running" in second.stderr) == (0, True)
        assert [path for _, path in lab.calls if path.endswith("claim")] == calls
        agent.kill()


def test_result_of_a_killed_agent_is_sent_before_the_next_claim(tmp_path: Path) -> None:
    commit = make_tree(tmp_path / "tree")
    first = Lab(assignments={"build-1-1": build_assignment("build-1-1", tmp_path / "tree", commit)})
    with running_server(first) as server:
        command = agent_command("build-1-1", server, tmp_path / "state")
        environment = {**os.environ, "TIDEMARK_CCACHE_DIR": str(tmp_path / "ccache")}
        with subprocess.Popen(command, cwd=AGENTS, env=environment, stderr=subprocess.DEVNULL) as agent:
            wait_for(first, "claim")
            first.failures_left = 10**9
            end = time.monotonic() + 60
            while not list((tmp_path / "state/spool").glob("*.json")):
                assert time.monotonic() < end, "no result in the spool"
                time.sleep(0.02)
            agent.kill()
    assert first.builds == {}
    second = Lab(assignments={**first.assignments, "build-2-1": {}})
    run_agent("build-2-1", second, tmp_path / "state")
    assert second.builds["build-1"]["outcome"] == "built"
    words = [path.rpartition("/")[2] for method, path in second.calls if method == "POST"]
    assert words[:2] == ["build", "claim"]
