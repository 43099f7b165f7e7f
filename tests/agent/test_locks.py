"""The agent's lock files: who holds one, and what the dispatcher on the same host reads from it."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
from tidemark_agent.locks import try_lock

from server.lab.dispatch.local import _holder


def test_dispatcher_reads_from_the_lock_whom_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "build-1-1.lock"
    path.write_text("99999999999999999999")
    descriptor = try_lock(path)
    assert descriptor is not None
    assert _holder(path) == os.getpid()
    os.close(descriptor)
    assert _holder(path) is None


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
