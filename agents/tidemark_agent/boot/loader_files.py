"""Files that a boot loader reads: it knows nothing of a file system's journal, so it sees only what is in its place."""

import contextlib
import fcntl
import os
from pathlib import Path

from tidemark_agent.errors import InfrastructureError

# _IOW('f', 43, __u32) of Linux 5.15: write the journal's content to where it belongs.
_EXT4_IOC_CHECKPOINT = 0x4004662B
_NO_FLAGS = (0).to_bytes(4, "little")


def overwrite(path: Path, data: bytes) -> None:
    """Give the file new content of the same size in the same blocks, durably.

    After a power cut GRUB then reads the new content where it has always been. A file that was truncated or replaced
    would be somewhere else, and GRUB, when it writes one, would write into blocks that may be another file's by then.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size != len(data):
            raise InfrastructureError(f"{path} has {size} bytes, but its new content has {len(data)}")
        if os.pwrite(descriptor, data, 0) != len(data):
            raise InfrastructureError(f"{path} could not be written whole")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoint(directory: Path) -> None:
    """Bring what the file system's journal holds to its place; nothing where there is no such thing (not ext4)."""
    os.sync()
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _EXT4_IOC_CHECKPOINT, _NO_FLAGS)
    finally:
        os.close(descriptor)
