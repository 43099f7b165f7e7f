"""The agent's lock files: who holds one, and what the dispatcher on the same host reads from it."""

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.system.disk import alone_on_host, beside_others, try_lock

from server.lab.dispatch import local


def test_dispatcher_reads_from_the_lock_whom_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_agents", lambda: tmp_path)
    path = tmp_path / "build-1-1.lock"
    path.write_text("99999999999999999999")
    descriptor = try_lock(path)
    assert descriptor is not None
    assert local._holder(path) == os.getpid()
    os.close(descriptor)
    assert local._holder(path) is None


def test_glance_at_the_lock_does_not_send_a_starting_agent_away(tmp_path: Path) -> None:
    path = tmp_path / "build-1-1.lock"
    with path.open("w") as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)
        assert try_lock(path) is None
        threading.Timer(0.1, fcntl.flock, (glance, fcntl.LOCK_UN)).start()
        descriptor = try_lock(path, patience=60)
    assert descriptor is not None
    os.close(descriptor)


def test_full_disk_takes_only_the_name_of_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "settings.lock"
    monkeypatch.setattr("os.pwrite", no_room)
    descriptor = try_lock(path)
    assert descriptor is not None
    assert try_lock(path) is None
    os.close(descriptor)
    descriptor = try_lock(path)
    assert descriptor is not None
    os.close(descriptor)


def test_one_that_must_be_alone_waits_for_others_and_goes_before_those_that_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_HOST", "_QUEUE"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(f"tidemark_agent.system.disk.{name}", tmp_path / name)
    monkeypatch.setattr("tidemark_agent.system.disk._POLL_SECONDS", 0.02)
    stop, stopped, order = threading.Event(), threading.Event(), []
    stopped.set()

    def be_alone() -> None:
        with alone_on_host(stop=stop, patience=60):
            order.append("alone")

    def come_late() -> None:
        with beside_others(stop=stop):
            order.append("late")

    with beside_others(stop=stop):
        with beside_others(stop=stop), pytest.raises(InfrastructureError), alone_on_host(stop=stop, patience=0.1):
            pass
        alone, late = threading.Thread(target=be_alone), threading.Thread(target=come_late)
        alone.start()
        while is_open(tmp_path / "_QUEUE"):
            time.sleep(0.01)
        late.start()
        with pytest.raises(StoppedError), beside_others(stop=stopped):
            pass
        order.append("first")
    alone.join()
    late.join()
    assert order == ["first", "alone", "late"]


def test_who_keeps_the_host_for_longer_than_any_agent_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_agent.system.disk._QUEUE", tmp_path)
    monkeypatch.setattr("tidemark_agent.system.disk._strangers", [])
    monkeypatch.setattr("tidemark_agent.system.disk._POLL_SECONDS", 0.02)
    stranger = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_EX)
    stop = threading.Event()
    in_time = threading.Timer(20, stop.set)
    in_time.start()
    for patience in (0.1, 3600):
        with beside_others(stop=stop, patience=patience):
            pass
    in_time.cancel()
    os.close(stranger)


def is_open(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
