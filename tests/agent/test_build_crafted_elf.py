"""A vmlinux that is made to harm whoever reads it."""

import struct
import time
from pathlib import Path

import pytest
from tidemark_agent.system.elf import build_id_of_file

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTES = 7


def elf(table_at: int, *sections: tuple[int, int], content: bytes = b"") -> bytes:
    """A file with a table of sections of notes, each given by where it is and by its size."""
    head = _HEADER.pack(b"\x7fELF\x02\x01", 2, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, max(1, len(sections)), 0)
    return head + b"".join(_SECTION.pack(0, _NOTES, 0, 0, at, size, 0, 0, 0, 0) for at, size in sections) + content


@pytest.mark.parametrize(
    "content",
    [
        elf(2**64 - 1),
        elf(2**63 - 1),
        elf(64, (2**64 - 1, 16)),
        elf(64, (128, 16 + 9000), content=struct.pack("<III", 4, 9000, 3) + b"GNU\0" + b"x" * 9000),
    ],
    ids=["table beyond all numbers", "table beyond all files", "notes beyond all numbers", "id of 9000 bytes"],
)
def test_crafted_vmlinux_has_no_build_id(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    assert build_id_of_file(tmp_path / "vmlinux") == ""


def test_notes_that_overlap_are_not_read_for_hours(tmp_path: Path) -> None:
    count = 60_000
    at = 64 + 64 * count
    (tmp_path / "vmlinux").write_bytes(elf(64, *[(at, 1 << 20)] * count, content=bytes(1 << 20)))
    started = time.process_time()
    assert build_id_of_file(tmp_path / "vmlinux") == ""
    assert time.process_time() - started < 5
