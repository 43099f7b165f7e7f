"""Files get into a guest's disk and out of it while no machine runs."""

from pathlib import Path

import pytest

from tests.testbed.disk import Disk
from tests.testbed.paths import TestbedError
from tests.testbed.system import make_file_system

pytestmark = pytest.mark.real
SMALL = 16 * 1024**2


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "old").write_text("old\n")
    make_file_system(tmp_path / "image", tree, size=SMALL)
    return Disk(tmp_path / "image")


def test_files_are_written_and_read_back(disk: Disk, tmp_path: Path) -> None:
    host = tmp_path / "host file"
    host.write_bytes(b"\0\1\2")
    disk.write({"/etc/old": "new\n", "/a/b/c": host, "/start": "#!/bin/sh\n"})
    assert disk.read("/etc/old") == b"new\n"
    assert disk.read("/a/b/c") == b"\0\1\2"
    folder = disk.copy_out("/a", tmp_path / "out")
    assert (folder / "b" / "c").read_bytes() == b"\0\1\2"
    assert disk.repaired() == disk


def test_a_file_that_is_not_there_is_told(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.read("/nothing")


def test_a_file_without_room_is_told(disk: Disk, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(2 * SMALL)
        stream.seek(SMALL)
        stream.write(b"\1" * SMALL)
    with pytest.raises(TestbedError, match="large"):
        disk.write({"/large": large})
