"""What a hostile build leaves in its object directory for the agent to trip over."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.build.failure import find_failure
from tidemark_agent.build.objects import ObjectDirs, put_file, take_file
from tidemark_agent.errors import KernelError
from tidemark_agent.system.disk import StrangeFileError, open_strange, read_strange


def leave(folder: Path, kind: str) -> None:
    """Put something of this kind in place of the file `left`."""
    place = folder / "left"
    if kind == "link to itself":
        place.symlink_to("left")
    elif kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "file with holes":
        place.touch()
        os.truncate(place, 1 << 31)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}/left")


@pytest.mark.parametrize("kind", ["link to itself", "directory", "pipe", "socket", "file with holes"])
def test_whatever_a_build_leaves_in_place_of_a_file_is_the_fault_of_the_build(tmp_path: Path, kind: str) -> None:
    leave(tmp_path, kind)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with pytest.raises(KernelError, match="left"):
        take_file(tmp_path, "left", tmp_path / "copy", largest=1 << 20)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
    assert not (tmp_path / "copy").exists()
    with pytest.raises(KernelError, match="left"):
        take_file(tmp_path, "left/in/there", tmp_path / "copy")


def test_file_of_the_agent_is_never_written_through_a_link_of_the_build(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "obj").mkdir()
    (tmp_path / "obj/one").symlink_to(tmp_path / "secret")
    (tmp_path / "obj/two/full").mkdir(parents=True)
    for name in ("one", "two", "three"):
        put_file(tmp_path / "obj", name, "text")
        assert not (tmp_path / "obj" / name).is_symlink()
        assert (tmp_path / "obj" / name).read_text() == "text"
    assert (tmp_path / "secret").read_text() == "kept"


def test_log_made_to_be_slow_is_read_in_seconds() -> None:
    started = time.process_time()
    assert find_failure(["Kconfig" * 571] * 1000).line == ""
    assert time.process_time() - started < 0.6
    assert find_failure(["drivers/net/Kconfig:12: can't open file"]).line == "drivers/net/Kconfig:12: can't open file"


def test_what_an_interrupted_build_wrote_with_an_old_date_goes_too(tmp_path: Path) -> None:
    dirs = ObjectDirs(root=tmp_path, tools="", stop=threading.Event())
    kept = dirs.open(keep=True)
    (kept / "half.o").write_text("ha")
    os.utime(kept / "half.o", (0, 0))
    assert not (dirs.open(keep=True) / "half.o").exists()


@pytest.mark.parametrize("place", ["left", "in/left", "in/there/left"])
def test_nothing_is_read_through_a_link_wherever_on_the_way_it_lies(tmp_path: Path, place: str) -> None:
    (tmp_path / "secrets/there").mkdir(parents=True)
    for folder in ("secrets", "secrets/there"):
        (tmp_path / folder / "left").write_text("secret")
    root = tmp_path / "obj"
    (root / "in").mkdir(parents=True)
    if place == "in/left":
        (root / "in").rmdir()
        (root / "in").symlink_to(tmp_path / "secrets")
    elif place == "in/there/left":
        (root / "in/there").symlink_to(tmp_path / "secrets")
    else:
        (root / "left").symlink_to(tmp_path / "secrets/left")
    with pytest.raises(StrangeFileError):
        open_strange(root, place)
    with pytest.raises(KernelError, match="left no plain file"):
        take_file(root, place, tmp_path / "copy")


def test_no_more_is_read_of_a_file_than_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/left").write_bytes(b"x" * 100)
    assert read_strange(tmp_path, "in/left", 10) == b"x" * 10


def test_file_with_holes_takes_no_more_of_the_disk_when_it_is_taken(tmp_path: Path) -> None:
    left, copy = tmp_path / "left", tmp_path / "copy"
    with left.open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate((1 << 30) + (1 << 26))
    take_file(tmp_path, "left", copy)
    assert copy.stat().st_size == left.stat().st_size
    assert copy.stat().st_blocks * 512 < 1 << 21
    with copy.open("rb") as file:
        assert file.read(5) == b"begin"
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"
