"""What a dead kernel left in pstore."""

import os
import zlib
from pathlib import Path

import pytest
from tidemark_agent.boot.evidence import LEAVING, collect_evidence, forget_evidence

PANIC = "Panic#1 Part1\n<0>[    3.1] Kernel panic - not syncing: Attempted to kill init!\n<0>[    3.2] Rebooting\n"
LINE = "[    0.0] Command line: root=/dev/vda1 tidemark.boot={}\n"


def write(root: Path, name: str, content: str | bytes, place: str = "sys/fs/pstore") -> Path:
    path = root / place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_panic_in_a_dump_is_found_with_its_tail(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-ramoops-0", PANIC)
    found = collect_evidence(tmp_path, "n1")
    assert found.panic == "Kernel panic - not syncing: Attempted to kill init!"
    assert "Rebooting" in found.tail


def test_panic_in_the_console_record_counts_when_it_is_this_boots(tmp_path: Path) -> None:
    write(tmp_path, "console-ramoops-0", LINE.format("n1") + "Kernel panic - not syncing: hung_task\n")
    assert collect_evidence(tmp_path, "n1").panic == "Kernel panic - not syncing: hung_task"
    assert collect_evidence(tmp_path, "n2").panic == ""


def test_console_without_panic_is_only_a_tail(tmp_path: Path) -> None:
    write(tmp_path, "console-ramoops-0", LINE.format("n1") + "last words\n")
    found = collect_evidence(tmp_path, "n1")
    assert (found.panic, "last words" in found.tail) == ("", True)


def test_compressed_dump_is_unpacked(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-efi-1.enc.z", zlib.compress(PANIC.encode()))
    assert "Attempted to kill init" in collect_evidence(tmp_path, "n1").panic


@pytest.mark.parametrize("content", [b"", b"\x78\x9c\xff\xff", b"\x1f\x8b", b"\xff" * 1000, b"\0" * 100])
def test_garbled_record_is_no_evidence(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "dmesg-ramoops-0", content)
    assert collect_evidence(tmp_path, "n1").panic == ""


def test_record_that_unpacks_to_much_is_cut(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-ramoops-0", zlib.compress(b"x" * 64 * 1024**2))
    assert len(collect_evidence(tmp_path, "n1").tail) == 8192


def test_escapes_of_a_console_do_not_reach_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-ramoops-0", "Kernel panic - not syncing: \x1b[31mred\x1b[0m\x07\n")
    assert collect_evidence(tmp_path, "n1").panic == "Kernel panic - not syncing: red"


def test_old_records_are_put_away_before_a_boot(tmp_path: Path) -> None:
    old = write(tmp_path, "dmesg-ramoops-0", PANIC)
    assert forget_evidence(tmp_path, tmp_path / "kept") == []
    assert not old.exists()
    assert (tmp_path / "kept/dmesg-ramoops-0").read_text() == PANIC
    assert collect_evidence(tmp_path, "n1").panic == ""


def test_what_systemd_moved_away_stays_but_does_not_count_again(tmp_path: Path) -> None:
    old = write(tmp_path, "17/dmesg.txt", PANIC, "var/lib/systemd/pstore")
    known = forget_evidence(tmp_path, tmp_path / "kept")
    assert (old.exists(), len(known)) == (True, 1)
    assert collect_evidence(tmp_path, "n1", known).panic == ""
    write(tmp_path, "18/dmesg.txt", PANIC, "var/lib/systemd/pstore")
    assert collect_evidence(tmp_path, "n1", known).panic != ""


def test_link_among_the_records_is_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path, "secret", PANIC, "etc")
    place = tmp_path / "sys/fs/pstore"
    place.mkdir(parents=True)
    (place / "dmesg-ramoops-0").symlink_to(secret)
    assert collect_evidence(tmp_path, "n1").panic == ""


def test_record_that_systemd_moved_over_an_older_one_of_the_same_name_counts(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-ramoops-0", PANIC, "var/lib/systemd/pstore")
    known = forget_evidence(tmp_path, tmp_path / "kept")
    assert collect_evidence(tmp_path, "n1", known).panic == ""
    write(tmp_path, "dmesg-ramoops-0", PANIC.replace("init", "idle"), "var/lib/systemd/pstore")
    assert "idle" in collect_evidence(tmp_path, "n1", known).panic


def test_years_of_moved_records_do_not_hide_the_newest(tmp_path: Path) -> None:
    for number in range(300):
        os.utime(write(tmp_path, f"{number:03d}/dmesg.txt", "old", "var/lib/systemd/pstore"), (number, number))
    known = forget_evidence(tmp_path, tmp_path / "kept")
    write(tmp_path, "999/dmesg.txt", PANIC, "var/lib/systemd/pstore")
    assert collect_evidence(tmp_path, "n1", known).panic != ""


def test_kernel_that_dies_on_the_way_into_the_next_one_is_not_taken_for_it(tmp_path: Path) -> None:
    write(tmp_path, "dmesg-ramoops-0", f"<3>[    3.0] {LEAVING}\n{PANIC}")
    assert collect_evidence(tmp_path, "n1").panic == ""
