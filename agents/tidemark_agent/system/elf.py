"""What a kernel image says of itself: build id, sections, and the hash of its machine code."""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tidemark_agent.errors import KernelError

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


# Hashes of what a kernel runs: of its code alone, and of its code with its data.
#
# The text hash is over all sections of vmlinux that are loaded, executable and have content (.text, .init.text,
# .exit.text, arm64's .head.text and .rodata.text, and .altinstr_replacement, whose instructions replace others at
# boot), in the order of their addresses: `name NUL size NUL content` of each. Addresses are left out: where code lies
# shows in its own jumps.
#
# Data is not in there: two kernels with one text hash may differ in a table or in the default of a sysctl. The kernel
# hash is over everything that is loaded but the build id, and the sizes of what is not in the file (.bss): two
# kernels with one kernel hash do the same, and there is nothing to measure between them. The tables of warnings and
# of debug messages count with their line numbers, which a comment above them moves: the same entries say what a
# warning does, and anything can be put beside them. Modules are not part of vmlinux; where there are some, their
# archive goes into the kernel hash (`with_modules`).

_CODE_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_CODE_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_MAGIC: Final = b"\x7fELF\x02\x01"
_PROGBITS: Final = 1
_NOTE_TEXT_HASH: Final = 7
_NOT_IN_FILE: Final = 8
_NOTE_HEADER: Final = struct.Struct("<III")
_BUILD_ID: Final = (b"GNU\0", 3)
# SHA-1, and what lld makes.
_BUILD_ID_SIZES: Final = frozenset({8, 16, 20})
_MOST_NOTES: Final = 1 << 20
_LOADED: Final = 0x2
_EXECUTABLE: Final = 0x4
# Kernels have some fifty to a hundred sections; where each function has one of its own, some tens of thousands.
_MOST_SECTIONS: Final = 60_000
_LONGEST_NAMES: Final = 16 * 1024**2
_LONGEST_NAME: Final = 1024
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class _Section:
    name: bytes
    address: int
    offset: int
    size: int
    kind: int
    executable: bool


@dataclass(frozen=True)
class KernelHashes:
    """SHA-256 in hex: of the code, and of code and data."""

    text: str
    kernel: str


def hashes_of_file(path: Path) -> KernelHashes:
    """Both hashes of a 64-bit little-endian ELF file.

    Raises KernelError when it is none, has no code, or contradicts itself: a build's vmlinux is its author's work.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        sections = sorted(_loaded(stream, size), key=lambda section: (section.address, section.offset, section.name))
        # Sections do not share content, so that a small file cannot ask for hours of reading.
        in_file = [section for section in sections if section.kind != _NOT_IN_FILE]
        if not any(one.executable for one in in_file) or sum(section.size for section in in_file) > size:
            raise KernelError(f"{path.name} has no code that can be read")
        text, kernel = hashlib.sha256(), hashlib.sha256()
        for section in sections:
            hashes = [text, kernel] if section.executable and section.kind == _PROGBITS else [kernel]
            for one in hashes:
                one.update(b"%s\0%d\0" % (section.name, section.size))
            for chunk in _content(stream, section):
                for one in hashes:
                    one.update(chunk)
    return KernelHashes(text.hexdigest(), kernel.hexdigest())


def with_modules(kernel: str, archive: Path) -> str:
    """The kernel hash of a kernel with modules: they run in it as well."""
    with archive.open("rb") as stream:
        return hashlib.sha256(f"{kernel} {hashlib.file_digest(stream, 'sha256').hexdigest()}".encode()).hexdigest()


def _loaded(stream: BinaryIO, file_size: int) -> Iterator[_Section]:
    stream.seek(0)
    header = stream.read(_CODE_HEADER.size)
    if len(header) < _CODE_HEADER.size or not header.startswith(_MAGIC):
        raise KernelError("vmlinux is no 64-bit little-endian ELF file")
    fields = _CODE_HEADER.unpack(header)
    table_at, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size != _CODE_SECTION.size or not names_index < count <= _MOST_SECTIONS:
        raise KernelError("vmlinux has no table of sections that can be read")
    table = list(_CODE_SECTION.iter_unpack(_read(stream, file_size, table_at, entry_size * count)))
    names_at, names_size = table[names_index][4], table[names_index][5]
    if names_size > _LONGEST_NAMES:
        raise KernelError("vmlinux has names of sections that are too long")
    names = _read(stream, file_size, names_at, names_size)
    for name, kind, flags, address, offset, size, *_ in table:
        if not flags & _LOADED or size == 0:
            continue
        if (kind != _NOT_IN_FILE and offset + size > file_size) or name >= len(names):
            raise KernelError("vmlinux has a section that is not in the file")
        known = names[name : name + _LONGEST_NAME].partition(b"\0")[0]
        yield _Section(known, address, offset, size, kind, bool(flags & _EXECUTABLE))


def _read(stream: BinaryIO, file_size: int, offset: int, size: int) -> bytes:
    if offset + size > file_size:
        raise KernelError("vmlinux is shorter than it says")
    stream.seek(offset)
    return stream.read(size)


def _content(stream: BinaryIO, section: _Section) -> Iterator[bytes]:
    if section.kind == _NOT_IN_FILE:
        return
    stream.seek(section.offset)
    if section.kind == _NOTE_TEXT_HASH and section.size <= _MOST_NOTES:
        yield _without_build_id(stream.read(section.size))
        return
    size = section.size
    while size > 0 and (chunk := stream.read(min(size, _CHUNK))):
        yield chunk
        size -= len(chunk)


def _without_build_id(notes: bytes) -> bytes:
    """The notes with zeros for the build id, which is over the debug information as well.

    Anybody can write more notes of its kind, and anything into them: then none is left out.
    """
    found, place = [], 0
    while place + _NOTE_HEADER.size <= len(notes):
        name_size, size, kind = _NOTE_HEADER.unpack_from(notes, place)
        name_at = place + _NOTE_HEADER.size
        at = name_at + _aligned(name_size)
        if (notes[name_at : name_at + name_size], kind) == _BUILD_ID:
            found.append((at, size))
        place = at + _aligned(size)
    if len(found) != 1 or found[0][1] not in _BUILD_ID_SIZES:
        return notes
    at, size = found[0]
    return notes[:at] + bytes(size) + notes[at + size :]
