"""The GNU build id, from an ELF file or from the notes that a running kernel shows."""

import struct
from pathlib import Path

_NT_GNU_BUILD_ID = 3
_SHT_NOTE = 7
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
# Of all sections of a file together: a build's vmlinux is its author's work, and may ask for hours of reading.
_LONGEST_NOTES = 1024 * 1024
# SHA-1 has 20 bytes, and so has what linkers call "fast"; the service takes no more.
_LONGEST_BUILD_ID = 32


def build_id_of_notes(notes: bytes) -> str:
    """The build id in a block of ELF notes as hexadecimal, or "" if there is none."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, value_size, kind = _NOTE.unpack_from(notes, at)
        name_at = at + _NOTE.size
        value_at = name_at + _aligned(name_size)
        end = value_at + value_size
        if end > len(notes):
            return ""
        if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0" and value_size:
            return "" if value_size > _LONGEST_BUILD_ID else notes[value_at:end].hex()
        at = value_at + _aligned(value_size)
    return ""


def build_id_of_file(path: Path) -> str:
    """The build id in the note sections of a 64-bit little-endian ELF file, or ""."""
    with path.open("rb") as stream:
        file_size, notes_left = stream.seek(0, 2), _LONGEST_NOTES
        stream.seek(0)
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:6] != b"\x7fELF\x02\x01":
            return ""
        fields = _HEADER.unpack(header)
        sections_at, section_size, section_count = fields[6], fields[11], fields[12]
        if section_size != _SECTION.size or sections_at > file_size:
            return ""
        stream.seek(sections_at)
        table = stream.read(section_size * section_count)
        for section in _SECTION.iter_unpack(table[: len(table) - len(table) % _SECTION.size]):
            if section[1] != _SHT_NOTE or section[5] > notes_left or section[4] > file_size:
                continue
            notes_left -= section[5]
            stream.seek(section[4])
            found = build_id_of_notes(stream.read(section[5]))
            if found:
                return found
    return ""


def _aligned(size: int) -> int:
    return (size + 3) & ~3
