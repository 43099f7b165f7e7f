"""The hash of a kernel's code: what counts, what does not, and files that lie about themselves."""

import contextlib
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_agent.errors import KernelError
from tidemark_agent.system.elf import hashes_of_file, with_modules

_PROGBITS, _NOTE, _STRINGS, _NOBITS = 1, 7, 3, 8
_ALLOC, _EXEC = 2, 4
_HEADER = 64
_ENTRY = 64


@dataclass(frozen=True)
class Part:
    """One section of a crafted file."""

    name: str
    content: bytes
    kind: int = _PROGBITS
    flags: int = _ALLOC | _EXEC
    address: int = 0x1000


TEXT = Part(".text", b"\x90\xc3" * 100)
REPLACEMENT = Part(".altinstr_replacement", b"\xf3\xaa\xc3", address=0x9000)


def note(kind: int, content: bytes, name: bytes = b"GNU\0") -> bytes:
    return struct.pack("<III", len(name), len(content), kind) + name + content


SALT = note(0x100, b"salt", b"Linux\0\0\0")
ONE, TWO = b"build id of 20 bytes", b"another id, 20 bytes"
BUILD_ID = Part(".notes", SALT + note(3, ONE), kind=_NOTE, flags=_ALLOC)
BANNER = Part(".rodata", b"Linux version 6.1", flags=_ALLOC)
PARTS = (TEXT, REPLACEMENT, BUILD_ID, BANNER)


def elf(parts: tuple[Part, ...], machine: int = 62) -> bytes:
    """A 64-bit little-endian ELF file with these sections and the table of their names."""
    names, places, body = b"\0", [], b""
    for part in (*parts, Part(".shstrtab", b"", kind=_STRINGS, flags=0, address=0)):
        places.append(len(names))
        names += part.name.encode() + b"\0"
    rows = [b"\0" * _ENTRY]
    for place, part in zip(places, (*parts, Part(".shstrtab", names, kind=_STRINGS, flags=0, address=0)), strict=True):
        offset = _HEADER + len(body)
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ", place, part.kind, part.flags, part.address, offset, len(part.content), 0, 0, 1, 0
            )
        )
        body += part.content
    table_at = _HEADER + len(body)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, machine, 1, 0, 0, table_at, 0, 64, 56, 0, _ENTRY, len(rows), len(rows) - 1
    )
    return header + body + b"".join(rows)


def text_hash(folder: Path, content: bytes) -> str:
    path = folder / "vmlinux"
    path.write_bytes(content)
    return hashes_of_file(path).text


def kernel_hash(folder: Path, content: bytes) -> str:
    path = folder / "vmlinux"
    path.write_bytes(content)
    return hashes_of_file(path).kernel


def test_kernels_that_differ_in_data_alone_are_told_apart(tmp_path: Path) -> None:
    data = Part(".data", b"swappiness=60", flags=_ALLOC | 1, address=0xA000)
    one, other = elf((*PARTS, data)), elf((*PARTS, replace(data, content=b"swappiness=90")))
    assert text_hash(tmp_path, one) == text_hash(tmp_path, other)
    assert kernel_hash(tmp_path, one) != kernel_hash(tmp_path, other)


def test_build_id_makes_no_other_kernel_and_any_other_note_does(tmp_path: Path) -> None:
    one, *others = (
        kernel_hash(tmp_path, elf((TEXT, replace(BUILD_ID, content=content), BANNER)))
        for content in (
            BUILD_ID.content,
            SALT + note(3, TWO),
            SALT + note(4, ONE),
            SALT.replace(b"salt", b"sold") + note(3, ONE),
            SALT + note(3, ONE) + note(3, ONE),
            SALT + note(3, ONE) + note(3, TWO),
            SALT + note(3, b"data" * 9),
            SALT + note(3, b"atad" * 9),
        )
    )
    assert [one == other for other in others] == [True, *[False] * 6]
    assert len(set(others)) == 7


def test_what_a_warning_does_and_the_size_of_what_is_empty_make_another_kernel(tmp_path: Path) -> None:
    """WARN_ON_ONCE and WARN_ON differ in a flag beside the line of the warning, and in nothing else."""
    table = Part("__bug_table", struct.pack("<iiHH", 1, 2, 100, 0x0901), flags=_ALLOC | 1, address=0xB000)
    empty = Part(".bss", b"12345678", kind=_NOBITS, flags=_ALLOC | 1, address=0xC000)
    always = replace(table, content=struct.pack("<iiHH", 1, 2, 100, 0x0900))
    smaller = replace(empty, content=b"1234")
    kinds = [(table, empty), (always, empty), (table, smaller)]
    assert len({kernel_hash(tmp_path, elf((*PARTS, *parts))) for parts in kinds}) == 3


def test_kernels_that_differ_in_a_module_alone_are_told_apart(tmp_path: Path) -> None:
    archives = [tmp_path / name for name in ("one", "other")]
    for archive in archives:
        archive.write_bytes(archive.name.encode())
    one, other = (with_modules("e" * 64, archive) for archive in archives)
    assert (one != other, one == with_modules("e" * 64, archives[0])) == (True, True)


def test_build_id_banner_and_data_do_not_count(tmp_path: Path) -> None:
    other = (TEXT, REPLACEMENT, replace(BUILD_ID, content=b"another"), replace(BANNER, content=b"Linux version 6.2-rc"))
    assert text_hash(tmp_path, elf(PARTS)) == text_hash(tmp_path, elf(other))


def test_order_in_the_file_does_not_count_and_the_machine_neither(tmp_path: Path) -> None:
    turned = elf(tuple(reversed(PARTS)), machine=183)
    assert text_hash(tmp_path, elf(PARTS)) == text_hash(tmp_path, turned)


@pytest.mark.parametrize(
    "changed",
    [
        replace(TEXT, content=b"\x90\xc3" * 99 + b"\xcc\xc3"),
        replace(TEXT, name=".init.text"),
        replace(TEXT, content=TEXT.content + b"\x90"),
    ],
)
def test_code_counts(tmp_path: Path, changed: Part) -> None:
    assert text_hash(tmp_path, elf(PARTS)) != text_hash(tmp_path, elf((changed, *PARTS[1:])))


def test_instructions_that_replace_others_at_boot_are_code(tmp_path: Path) -> None:
    other = (TEXT, replace(REPLACEMENT, content=b"\xf3\xa4\xc3"), BUILD_ID, BANNER)
    assert text_hash(tmp_path, elf(PARTS)) != text_hash(tmp_path, elf(other))


def test_bytes_cannot_wander_between_sections_unseen(tmp_path: Path) -> None:
    one = (Part(".a", b"xy", address=1), Part(".b", b"z", address=2))
    other = (Part(".a", b"x", address=1), Part(".b", b"yz", address=2))
    assert text_hash(tmp_path, elf(one)) != text_hash(tmp_path, elf(other))


def spoiled(offset: int, code: str, value: int) -> bytes:
    data = bytearray(elf(PARTS))
    struct.pack_into(code, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF",
        b"\x7fELF\x01\x01" + bytes(200),
        elf((BUILD_ID, BANNER)),
        elf((replace(TEXT, kind=_NOBITS),)),
        spoiled(40, "<Q", 1 << 62),
        spoiled(58, "<H", 1),
        spoiled(60, "<H", 65535),
        spoiled(62, "<H", 999),
        elf(PARTS)[:-30],
        elf(tuple(replace(TEXT, content=b"") for _ in range(3))),
    ],
)
def test_file_that_lies_about_itself_is_the_kernels_fault(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(KernelError):
        text_hash(tmp_path, content)


def test_small_file_cannot_ask_for_hours_of_reading(tmp_path: Path) -> None:
    data = bytearray(elf(tuple(TEXT for _ in range(100))))
    table_at = struct.unpack_from("<Q", data, 40)[0]
    for number in range(1, 101):
        struct.pack_into("<QQ", data, table_at + number * _ENTRY + 24, 0, table_at)
    with pytest.raises(KernelError):
        text_hash(tmp_path, bytes(data))


@given(st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=12))
def test_no_spoiled_byte_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(elf(PARTS))
    for place, value in changes:
        data[place % len(data)] = value
    with contextlib.suppress(KernelError):
        assert len(text_hash(tmp_path_factory.getbasetemp(), bytes(data))) == 64
