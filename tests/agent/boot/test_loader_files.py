"""Files that GRUB reads without the file system's journal."""

from pathlib import Path

import pytest
from tidemark_agent.boot.loader import checkpoint, overwrite
from tidemark_agent.errors import InfrastructureError


def test_file_is_overwritten_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "grubenv"
    file.write_bytes(b"a" * 1024)
    inode = file.stat().st_ino
    overwrite(file, b"b" * 1024)
    assert (file.read_bytes(), file.stat().st_ino) == (b"b" * 1024, inode)


def test_content_of_another_size_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "grubenv"
    file.write_bytes(b"a" * 1024)
    with pytest.raises(InfrastructureError, match="1024 bytes, but its new content has 3"):
        overwrite(file, b"bbb")
    assert file.read_bytes() == b"a" * 1024


def test_file_system_without_a_journal_needs_no_checkpoint_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    # Whatever the tests' files stand on: it has the call, or it says that it has not.
    checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError):
        checkpoint(tmp_path / "missing")
