"""Which kernel runs."""

import struct
from pathlib import Path

import pytest
from tidemark_agent.boot.evidence import kernel_log_tail, running_system
from tidemark_agent.errors import InfrastructureError


def write(root: Path, name: str, content: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_running_kernel_proves_itself(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/random/boot_id", b"0f6e0a3e-0000-4000-8000-000000000001\n")
    write(tmp_path, "proc/cmdline", b"root=/dev/vda1 tidemark.boot=abc\n")
    write(tmp_path, "sys/kernel/notes", struct.pack("<III4s4s", 4, 4, 3, b"GNU\0", b"\x01\x02\x03\x04"))
    running = running_system(tmp_path)
    assert (running.boot_id, running.build_id) == ("0f6e0a3e-0000-4000-8000-000000000001", "01020304")
    assert (running.nonce, running.is_test_kernel) == ("abc", True)


def test_kernel_without_notes_has_no_build_id(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/random/boot_id", b"x\n")
    write(tmp_path, "proc/cmdline", b"ro \xff\n")
    running = running_system(tmp_path)
    assert (running.build_id, running.is_test_kernel) == ("", False)


def test_system_without_proc_is_infrastructure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot be told"):
        running_system(tmp_path)


def test_this_system_has_a_boot_id() -> None:
    assert len(running_system().boot_id) == 36


def test_log_of_a_system_that_shows_none_is_empty(tmp_path: Path) -> None:
    assert kernel_log_tail(tmp_path / "missing") == ""


@pytest.mark.parametrize("content", [b"<b>of a patch</b>\n", b"\xff\xfe", b"a" * 37])
def test_boot_id_that_is_none_is_left_out(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "proc/sys/kernel/random/boot_id", content)
    write(tmp_path, "proc/cmdline", b"ro\n")
    assert running_system(tmp_path).boot_id == ""


def test_build_id_that_is_longer_than_the_service_takes_is_none(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/kernel/random/boot_id", b"0f6e0a3e-0000-4000-8000-000000000001\n")
    write(tmp_path, "proc/cmdline", b"ro\n")
    write(tmp_path, "sys/kernel/notes", struct.pack("<III4s", 4, 4096, 3, b"GNU\0") + bytes(4096))
    assert running_system(tmp_path).build_id == ""
