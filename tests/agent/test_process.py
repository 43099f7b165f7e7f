"""Running other programs: none outlives the agent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.system.disk import StrangeFileError
from tidemark_agent.system.process import capture, run
from tidemark_agent.system.sandbox import Bind, Sandbox

from scripts.build_agent import AGENTS

# A program with a child of its own: both must go. They write their ids so that the test can look for them.
FAMILY = ["sh", "-c", "sleep 600 & echo $! $$ > ids; wait"]


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits for its parent to notice its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def read_ids(directory: Path) -> list[int]:
    ids = directory / "ids"
    wait_until(lambda: ids.exists() and ids.read_text().endswith("\n"))
    return [int(word) for word in ids.read_text().split()]


def wait_until(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def is_bwrap_usable(tmp_path: Path) -> bool:
    try:
        capture(Sandbox().wrap(["true"]), scratch=tmp_path, timeout=20, stop=threading.Event())
    except InfrastructureError:
        return False
    return True


def test_output_and_status_come_back(tmp_path: Path) -> None:
    done = run(["sh", "-c", "echo hi; exit 3"], output=tmp_path / "out", timeout=20, stop=threading.Event())
    assert (done.code, done.timed_out) == (3, False)
    assert (tmp_path / "out").read_text() == "hi\n"


def test_death_by_signal_is_told_as_shells_do(tmp_path: Path) -> None:
    done = run(["sh", "-c", "kill -SEGV $$"], output=tmp_path / "out", timeout=20, stop=threading.Event())
    assert done.code == 128 + signal.SIGSEGV


def test_missing_program_is_our_fault(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no-such-program"):
        capture(["no-such-program"], scratch=tmp_path, timeout=20, stop=threading.Event())


def test_end_and_time_limit_are_seen_at_once_however_rarely_the_agent_wakes(tmp_path: Path) -> None:
    looks: list[float] = []

    def look() -> bool:
        looks.append(time.monotonic())
        return False

    for words, timed_out in ((["sleep", "0.2"], False), (["sleep", "600"], True)):
        done = run(words, output=tmp_path / "out", timeout=3.0, stop=threading.Event(), over=look, pause=600.0)
        assert done.timed_out is timed_out
        assert done.seconds < 30
    assert len(looks) == 3  # At each begin, and once before the time limit is found to be over.


def test_environment_of_the_agent_does_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SECRET_KEY", "hush")
    assert "hush" not in capture(["env"], scratch=tmp_path, timeout=20, stop=threading.Event())


def test_time_limit_kills_the_whole_family(tmp_path: Path) -> None:
    done = run(FAMILY, output=tmp_path / "out", timeout=1.0, stop=threading.Event(), directory=tmp_path)
    assert done.timed_out
    assert not any(is_alive(pid) for pid in read_ids(tmp_path))


def test_stop_kills_the_whole_family(tmp_path: Path) -> None:
    stop = threading.Event()

    def stop_when_it_runs() -> None:
        read_ids(tmp_path)
        stop.set()

    threading.Thread(target=stop_when_it_runs, daemon=True).start()
    with pytest.raises(StoppedError):
        run(FAMILY, output=tmp_path / "out", timeout=600, stop=stop, directory=tmp_path)
    assert not any(is_alive(pid) for pid in read_ids(tmp_path))


def test_stragglers_go_when_the_program_ends_by_itself(tmp_path: Path) -> None:
    words = ["sh", "-c", "sleep 600 & echo $! $$ > ids"]
    assert run(words, output=tmp_path / "out", timeout=60, stop=threading.Event(), directory=tmp_path).code == 0
    wait_until(lambda: not any(is_alive(pid) for pid in read_ids(tmp_path)))


def test_program_that_has_left_its_group_does_not_get_away(tmp_path: Path) -> None:
    away = "setsid --fork sh -c 'setsid sleep 600 & echo $! $$ > ids; wait'"
    words = ["sh", "-c", f"{away}; until [ -s ids ]; do sleep 0.05; done"]
    assert run(words, output=tmp_path / "out", timeout=60, stop=threading.Event(), directory=tmp_path).code == 0
    assert not any(is_alive(pid) for pid in read_ids(tmp_path))


def test_program_that_does_not_end_when_it_is_killed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard that is stopped waits as long as one whose program hangs in the kernel."""
    monkeypatch.setattr("tidemark_agent.system.process._END_SECONDS", 0.2)
    words = ["sh", "-c", "echo $$ > ids; kill -STOP $PPID; sleep 600"]
    done = run(words, output=tmp_path / "out", timeout=1.0, stop=threading.Event(), directory=tmp_path)
    assert (done.timed_out, done.is_stuck) == (True, True)
    wait_until(lambda: not any(is_alive(pid) for pid in read_ids(tmp_path)))
    with pytest.raises(InfrastructureError, match="sh cannot be killed: it hangs in the kernel"):
        capture(words, scratch=tmp_path, timeout=0.5, stop=threading.Event(), directory=tmp_path)


def test_killed_agent_takes_its_children_along(tmp_path: Path) -> None:
    code = (
        "import sys, threading; from pathlib import Path; from tidemark_agent.system.process import run; "
        f"run({FAMILY!r}, output=Path('out'), timeout=600, stop=threading.Event(), directory=Path('.'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(AGENTS)}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment) as agent:
        ids = read_ids(tmp_path)
        assert all(is_alive(pid) for pid in ids)
        agent.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in ids))


def test_file_limit_holds(tmp_path: Path) -> None:
    words = ["dd", "if=/dev/zero", f"of={tmp_path / 'big'}", "bs=1M", "count=4"]
    done = run(words, output=tmp_path / "out", timeout=60, stop=threading.Event(), file_limit=1024 * 1024)
    assert done.code != 0
    assert (tmp_path / "big").stat().st_size <= 1024 * 1024


def test_sandbox_hides_everything_but_its_binds(tmp_path: Path) -> None:
    if not is_bwrap_usable(tmp_path):
        pytest.skip("bwrap may not be used here")
    (tmp_path / "token").write_text("hush")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("x")
    room = Sandbox(binds=(Bind(tmp_path / "source", "/build/src"),), environment={"PATH": "/usr/bin:/bin", "SEEN": "1"})
    script = (
        f"cat /build/src/file; cat {tmp_path}/token; touch /build/src/new; ls /root /home /etc/shadow /var; "
        "env; cat /proc/net/dev; id -u; ls -d /proc/[0-9]* | wc -l"
    )
    words = room.wrap(["sh", "-c", script])
    run(words, output=tmp_path / "out", timeout=30, stop=threading.Event())
    said = (tmp_path / "out").read_text()
    assert said.startswith("x")
    assert "hush" not in said
    assert "Read-only file system" in said
    assert said.count("No such file or directory") >= 5
    assert "eth0" not in said
    assert "\n1000\n" in said
    assert not (tmp_path / "source/new").exists()


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_output_is_written_through_no_link_and_into_no_pipe(tmp_path: Path, kind: str, append: bool) -> None:
    (tmp_path / "secret").write_text("kept")
    if kind == "link":
        (tmp_path / "output").symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(tmp_path / "output")
    with pytest.raises(StrangeFileError):
        run(["echo", "x"], output=tmp_path / "output", timeout=5, stop=threading.Event(), append=append)
    assert (tmp_path / "secret").read_text() == "kept"
