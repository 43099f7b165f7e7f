"""The room in which git reads what strangers wrote: what it sees, reaches and may take."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.core.programs import sandbox
from server.core.programs.git import Completed, GitError, run, run_program
from server.core.programs.sandbox import Room, require_sandbox


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What one test found out about the host says nothing to the next."""
    require_sandbox.cache_clear()
    yield
    require_sandbox.cache_clear()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    (tmp_path / "room").mkdir()
    return Room(writable=tmp_path / "room", cpu_seconds=20)


def shell(script: str, room: Room, *, timeout: float = 20.0) -> Completed:
    return run_program("bash", "-c", script, cwd=room.writable, timeout=timeout, room=room)


def test_no_server_of_the_host_can_be_reached(room: Room) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{listening.getsockname()[1]} && echo reached"
        assert run_program("bash", "-c", script, cwd=room.writable).stdout == b"reached\n"
        done = shell(script, room)
    assert done.code != 0
    assert b"reached" not in done.stdout


def test_only_its_own_folder_can_be_written_to(room: Room, tmp_path: Path) -> None:
    done = shell(f"echo own > own; echo x > {tmp_path}/outside; echo x > /usr/x; echo x > /etc/x; touch /x", room)
    assert (room.writable / "own").read_text() == "own\n"
    assert not (tmp_path / "outside").exists()
    assert not Path("/x").exists()
    assert done.stderr.count("Read-only file system") == 4


@pytest.mark.parametrize("place", ["/tmp", "/dev", "/dev/shm", "/proc/sys/kernel/hostname"])  # noqa: S108 (the room's)
def test_no_memory_can_be_filled_with_files(room: Room, place: str) -> None:
    done = shell(f"mktemp {place}/XXXX; echo x > {place}; mktemp", room)
    assert done.stdout.decode().startswith(f"{room.writable}/"), "where programs put what they need for a while"


def test_nothing_else_of_the_host_can_be_seen(room: Room, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the token")
    code = Path(__file__).resolve().parents[2]
    done = shell(f"cat {tmp_path}/secret; ls {code}/manage.py /root /home /var /etc/passwd; ls /tmp", room)
    assert b"token" not in done.stdout
    assert b"manage.py" not in done.stdout
    seen = {part for part in done.stdout.decode().split() if part.startswith("/")}
    assert seen == set()


def test_what_is_readable_cannot_be_changed(room: Room, tmp_path: Path) -> None:
    shared = tmp_path / "objects"
    shared.mkdir()
    (shared / "pack").write_text("whole")
    lent = Room(writable=room.writable, readable=(shared,))
    done = shell(f"cat {shared}/pack; echo broken > {shared}/pack; rm -f {shared}/pack", lent)
    assert done.stdout == b"whole"
    assert (shared / "pack").read_text() == "whole"


def test_environment_holds_no_secret(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SECRET_KEY", "sesame")
    monkeypatch.setenv("https_proxy", "http://user:sesame@proxy.example")
    assert b"sesame" not in shell("env; cat /proc/*/environ", room).stdout


def test_it_has_no_rights_and_sees_no_other_process(room: Room) -> None:
    done = shell("id -u; grep CapEff /proc/self/status; ls /proc | grep -c '^[0-9]'", room)
    user, capabilities, processes = done.stdout.decode().splitlines()
    assert user == "1000"
    assert capabilities.split()[1].strip("0") == ""
    assert int(processes) < 10
    assert len([p for p in Path("/proc").iterdir() if p.name.isdigit()]) > int(processes)


def test_git_reads_its_own_configuration_there(room: Room) -> None:
    assert run("config", "core.hooksPath", cwd=room.writable, room=room).stdout == b"/dev/null\n"


@pytest.mark.parametrize(
    ("limit", "script", "words"),
    [
        ("_FILE_BYTES", "head -c 3000000 /dev/zero > big; wc -c < big", "1048576"),
        ("_MEMORY_BYTES", "head -c 3000000 /dev/zero | tail | wc -c", "0"),
    ],
)
def test_limits_hold(room: Room, monkeypatch: pytest.MonkeyPatch, limit: str, script: str, words: str) -> None:
    monkeypatch.setattr(sandbox, limit, 1024 * 1024)
    assert shell(script, room).stdout.decode().split() == [words]


def test_a_loop_ends_with_its_cpu_time(room: Room) -> None:
    short = Room(writable=room.writable, cpu_seconds=1)
    with pytest.raises(GitError, match="was ended by the system"):
        shell("while :; do :; done", short)


def test_all_that_it_started_ends_when_time_is_over(room: Room) -> None:
    with pytest.raises(GitError, match=r"took longer than 0\.5 s"):
        shell("setsid sh -c 'sleep 1; touch late' & sleep 60", room, timeout=0.5)
    run_program("sleep", "1", cwd=room.writable)
    assert not (room.writable / "late").exists()


def test_without_bubblewrap_nothing_runs_and_the_reason_says_so(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DomainError, match="bubblewrap\\) is not installed") as caught:
        run("version", cwd=room.writable, room=room)
    assert (caught.value.code, caught.value.permanent) == ("sandbox-missing", False)


def test_container_without_namespaces_is_told_what_is_missing(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DomainError, match=r"No permissions to create new namespace.*unprivileged_userns_clone"):
        run("version", cwd=room.writable, room=room)


def test_operator_may_do_without(
    room: Room, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.APPLY_SANDBOX = "none"
    monkeypatch.setattr(sandbox, "_FILE_BYTES", 4096)
    done = shell(f"head -c 9000 /dev/zero > {tmp_path}/outside; wc -c < {tmp_path}/outside", room)
    assert done.stdout.split() == [b"4096"]
