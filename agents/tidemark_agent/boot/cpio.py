"""Writing cpio archives in the "newc" form that kernels unpack: no root, no program, same input same bytes."""

import stat
from dataclasses import dataclass

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """One file of the archive; `mode` tells its type too, `device` is (major, minor) of a device node."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def plain_file(name: str, content: bytes) -> Entry:
    return Entry(name, stat.S_IFREG | 0o644, content)


def program(name: str, content: bytes) -> Entry:
    return Entry(name, stat.S_IFREG | 0o755, content)


def character_device(name: str, major: int, minor: int) -> Entry:
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def write_archive(entries: list[Entry]) -> bytes:
    """The archive with `entries` in their order, owned by root, dated 1970."""
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    parts.append(_record(0, Entry(_TRAILER, 0)))
    archive = b"".join(parts)
    return archive + b"\0" * (-len(archive) % 512)


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    numbers = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = (_MAGIC + "".join(f"{value:08x}" for value in numbers)).encode()
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
