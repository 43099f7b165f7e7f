"""What the agent sends: JSON that a database can store, and bytes made smaller where that helps."""

import gzip
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# Below this the header and the work cost more than the network.
_SMALLEST = 1024
# Kernel images and archives are compressed already: their start tells.
_TRIED = 64 * 1024
_WORTH = 0.8
_LEVEL = 6
# JSON can write them, yet no database stores them as text.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_body(body: Mapping[str, Any]) -> bytes:
    return json.dumps(storable(body)).encode()


def packed(data: bytes) -> bytes | None:
    """`data` as gzip, or None where that is not worth it. The same data gives the same bytes."""
    if len(data) < _SMALLEST:
        return None
    small = gzip.compress(data, _LEVEL, mtime=0)
    return small if len(small) < len(data) * _WORTH else None


@contextmanager
def packed_file(source: Path) -> Iterator[IO[bytes] | None]:
    """The content of `source` as gzip, in a file that is gone afterwards; None where that is not worth it.

    Without room on the disk it is None, too: the file can go as it is.
    """
    with source.open("rb") as stream:
        start = stream.read(_TRIED)
        if len(start) < _SMALLEST or len(zlib.compress(start, 1)) > len(start) * _WORTH:
            yield None
            return
        stream.seek(0)
        small = _new_file(source.parent)
        try:
            yield small if small is not None and _is_packed(stream, small) else None
        finally:
            if small is not None:
                # What a full disk did not take is still in the buffer, and closing tries, and fails, once more.
                with suppress(OSError):
                    small.close()


def _new_file(directory: Path) -> IO[bytes] | None:
    try:
        return tempfile.TemporaryFile(dir=directory)
    except OSError:
        return None


def _is_packed(stream: IO[bytes], small: IO[bytes]) -> bool:
    try:
        with gzip.GzipFile(fileobj=small, mode="wb", compresslevel=_LEVEL, mtime=0) as packing:
            shutil.copyfileobj(stream, packing)
        small.flush()
        small.seek(0)
    except OSError:
        return False
    return True


def storable(value: Any) -> Any:
    """`value` with every text in it such that a database can store it: texts may come from a tested kernel."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {storable(name): storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
