"""The program that starts agents for a worker in another container, by the orders in a folder."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_agent import starter
from tidemark_agent.__main__ import main
from tidemark_agent.errors import UnfitError
from tidemark_agent.log import Log
from tidemark_agent.starter import UNFIT, Starter
from tidemark_agent.system.disk import is_locked, try_lock

STAND_IN = """
import fcntl, os, sys, time
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with open(os.path.join(options["--state-dir"], sys.argv[2] + ".lock"), "a+") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(sys.argv[2:], flush=True)
    time.sleep(60)
"""


def order(folder: Path, key: str, about: dict[str, str] | None = None) -> Path:
    path = folder / "orders" / f"{key}.start"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": key, "subject": "vm-1", "server": "http://web:8000"} | (about or {})))
    return path


def made(folder: Path) -> Starter:
    (folder / "stand_in.py").write_text(STAND_IN)
    return Starter(folder / "agents", Log(io.StringIO()), (sys.executable, str(folder / "stand_in.py")))


def until(starter: Starter, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 seconds in vain"
        starter.look()
        time.sleep(0.02)


def test_order_stands_until_its_agent_lives_and_a_stop_ends_it(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    start = order(agents, "session-1-1")
    one, lock = made(tmp_path), agents / "vm-1/session-1-1.lock"
    until(one, lambda: not start.exists())
    assert is_locked(lock)
    words = (agents / "vm-1/session-1-1.log").read_text()
    assert f"'--token-file', '{tmp_path}/tokens/vm-1'" in words
    (agents / "orders/session-1-1.stop").touch()
    until(one, lambda: not is_locked(lock))
    one.end_all()
    assert list((agents / "orders").iterdir()) == []


def test_agents_end_with_the_program_that_started_them(tmp_path: Path) -> None:
    order(tmp_path / "agents", "session-1-1")
    one, lock = made(tmp_path), tmp_path / "agents/vm-1/session-1-1.lock"
    until(one, lambda: is_locked(lock))
    one.end_all()
    assert not is_locked(lock)


@pytest.mark.parametrize("about", [{"key": "../x"}, {"subject": "../../x"}, {"subject": ""}, {"key": "--help"}])
def test_order_that_leads_out_of_the_folder_starts_nothing(tmp_path: Path, about: dict[str, str]) -> None:
    start = order(tmp_path / "agents", "session-1-1", about)
    one = made(tmp_path)
    one.look()
    assert not start.exists()
    assert {path.name for path in tmp_path.rglob("*")} == {"agents", "orders", "stand_in.py"}


def test_order_that_is_no_json_is_thrown_away(tmp_path: Path) -> None:
    start = order(tmp_path / "agents", "session-1-1")
    start.write_text("{")
    made(tmp_path).look()
    assert not start.exists()


def test_host_without_walls_does_not_begin_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UnfitError("no sandbox for other people's code: bwrap is missing")

    monkeypatch.setattr(starter, "require_sandbox", refuse)
    monkeypatch.setattr(starter, "require_memory_group", lambda: None)
    assert main(["serve", str(tmp_path)]) == UNFIT
    assert main(["check"]) == UNFIT
    assert capsys.readouterr().err.count("tidemark-agent: no sandbox for other people's code: bwrap is missing") == 2
    assert main(["check", "--sandbox", "none"]) == 0


def test_host_whose_memory_nobody_counts_is_unfit_unless_the_operator_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark_agent.system.process.memory_trouble", lambda: "there is none")
    assert main(["check", "--sandbox", "none"]) == UNFIT
    assert main(["check", "--sandbox", "none", "--cgroup", "optional"]) == 0


def test_one_program_alone_serves_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "_GOODBYE_SECONDS", 0.0)
    assert try_lock(tmp_path / "serve.lock") is not None
    assert main(["serve", str(tmp_path), "--sandbox", "none", "--cgroup", "optional"]) == UNFIT


def test_program_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "tidemark_agent",
        "serve",
        str(tmp_path),
        "--sandbox",
        "none",
        "--cgroup",
        "optional",
    ]
    agents = Path(starter.__file__).parents[1]
    with subprocess.Popen(words, env={"PYTHONPATH": str(agents), "PATH": "/usr/bin:/bin"}) as serving:
        deadline = time.monotonic() + 20
        while not is_locked(tmp_path / "serve.lock"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        serving.terminate()
        assert serving.wait(20) == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_order_that_is_no_plain_file_is_dropped_unread(tmp_path: Path, kind: str) -> None:
    agents = tmp_path / "agents"
    one, start = made(tmp_path), agents / "orders/session-1-1.start"
    if kind == "link":
        start.symlink_to(order(tmp_path, "session-1-1"))
    else:
        os.mkfifo(start)
    one.look()
    assert not start.is_symlink()
    assert list((agents / "orders").iterdir()) == []
    assert not (agents / "vm-1").exists()
