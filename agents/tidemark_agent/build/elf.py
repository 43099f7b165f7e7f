"""The GNU build id, from an ELF file or from the notes that a running kernel shows."""

import struct
from pathlib import Path

_NT_GNU_BUILD_ID = 3
_SHT_NOTE = 7
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_LONGEST_NOTES = 1024 * 1024


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
            return notes[value_at:end].hex()
        at = value_at + _aligned(value_size)
    return ""


def build_id_of_file(path: Path) -> str:
    """The build id in the note sections of a 64-bit little-endian ELF file, or ""."""
    with path.open("rb") as stream:
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:6] != b"\x7fELF\x02\x01":
            return ""
        fields = _HEADER.unpack(header)
        sections_at, section_size, section_count = fields[6], fields[11], fields[12]
        if section_size != _SECTION.size:
            return ""
        stream.seek(sections_at)
        table = stream.read(section_size * section_count)
        for section in _SECTION.iter_unpack(table[: len(table) - len(table) % _SECTION.size]):
            if section[1] != _SHT_NOTE or section[5] > _LONGEST_NOTES:
                continue
            stream.seek(section[4])
            found = build_id_of_notes(stream.read(section[5]))
            if found:
                return found
    return ""


def _aligned(size: int) -> int:
    return (size + 3) & ~3
