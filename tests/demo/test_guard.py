import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from demo.processes import STALL_SECONDS, DemoError, Patience, only_demo, only_writer, require_host
from demo.world import ROOT, forget_world, open_world


def test_second_demo_is_told_who_runs_and_where(tmp_path: Path) -> None:
    with only_demo(tmp_path) as claim:
        claim.tell_url("http://127.0.0.1:8000")
        words = rf"already running \(pid {os.getpid()}, http://127.0.0.1:8000\)"
        with pytest.raises(DemoError, match=words), only_demo(tmp_path):
            pass
    with only_demo(tmp_path):
        pass


def test_host_for_which_nothing_was_tried_is_told_why_not_and_what_works() -> None:
    for machine in ("x86_64", "aarch64"):
        require_host(machine)
    with pytest.raises(DemoError, match=r"this host is riscv64.*ARGS=--lab"):
        require_host("riscv64")


def test_second_demo_ends_with_status_1_and_no_traceback(tmp_path: Path) -> None:
    with only_demo(tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "demo", "--once"],
            cwd=ROOT,
            env={**os.environ, "TIDEMARK_LOCAL": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"demo: already running (pid {os.getpid()}")
    assert "Traceback" not in done.stderr


def test_second_writer_of_the_shared_tree_waits_for_the_first(tmp_path: Path) -> None:
    said: list[str] = []
    waits, writes = threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def second() -> None:
        with only_writer(tmp_path, say):
            writes.set()

    other = threading.Thread(target=second)
    with only_writer(tmp_path, said.append):
        other.start()
        assert waits.wait(60)
        assert not writes.is_set()
    other.join(60)
    assert writes.is_set()
    assert said == [f"waiting for another demo that makes the tree in {tmp_path}"]


def test_waiting_ends_at_the_deadline_even_while_things_move() -> None:
    now = [0.0]
    patience = Patience(120.0, "/logs", now=lambda: now[0])
    for second in range(0, 120, 10):
        now[0] = float(second)
        patience.feel(str(second))
    now[0] = 121.0
    with pytest.raises(DemoError, match=r"not at the end after 2 minutes.*/logs"):
        patience.feel("121")


def test_waiting_ends_when_nothing_moves() -> None:
    now = [0.0]
    patience = Patience(1e9, "/logs", now=lambda: now[0])
    patience.feel("same")
    now[0] = STALL_SECONDS
    patience.feel("same")
    now[0] += 1
    with pytest.raises(DemoError, match="nothing has moved"):
        patience.feel("same")


def test_moving_gives_new_patience() -> None:
    now = [0.0]
    patience = Patience(1e9, "/logs", now=lambda: now[0])
    for step in range(5):
        patience.feel(str(step))
        now[0] += STALL_SECONDS


def test_ports_stay_over_restarts_and_are_replaced_when_taken(tmp_path: Path) -> None:
    import socket

    first = open_world(tmp_path, running=False)
    assert first.ports.archive != first.ports.sink
    assert open_world(tmp_path, running=False).ports == first.ports
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.ports.sink))
        other.listen()
        assert open_world(tmp_path, running=True).ports == first.ports, "a running stack holds them itself"
        assert open_world(tmp_path, running=False).ports.sink != first.ports.sink


def test_service_may_mail_to_the_sink_only(tmp_path: Path) -> None:
    world = open_world(tmp_path, running=False)
    settings = world.settings()
    assert settings["TIDEMARK_MAIL_SINK"] == f"{settings['TIDEMARK_SMTP_HOST']}:{settings['TIDEMARK_SMTP_PORT']}"
    sink = next(program for program in world.programs() if program.name == "sink")
    assert settings["TIDEMARK_SMTP_PORT"] in sink.argv


def test_database_of_the_operator_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(DemoError, match="database of yours"):
        forget_world(tmp_path, {"TIDEMARK_DATABASE_URL": "postgres://me@/mine"})
    assert (tmp_path / "demo").exists()


def test_forgetting_removes_what_the_demo_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("demo", "state", "redis", "log", "test"):
        (tmp_path / name).mkdir()
    forget_world(tmp_path, {})
    left = {path.name for path in tmp_path.iterdir()}
    assert {"log", "test"} <= left
    assert not left & {"demo", "state", "redis"}
