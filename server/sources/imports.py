"""Mails that do not come from an archive: mbox, maildir, single files, or a mail server's pipe."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FROM_LINE = re.compile(rb"From \S+.*\d{4}\s*$")
_QUOTED = re.compile(rb"^>(>*From )")


def mails_of(path: Path) -> Iterator[bytes]:
    """Every mail of a file (mbox or one mail), or of a folder (maildir, or files *.eml)."""
    if path.is_dir():
        maildir = [p for name in ("cur", "new") if (path / name).is_dir() for p in (path / name).iterdir()]
        for file in sorted(maildir or path.glob("*.eml")):
            yield file.read_bytes()
        return
    with path.open("rb") as stream:
        yield from mails_in(stream)


def mails_in(stream: BinaryIO) -> Iterator[bytes]:
    """Every mail of an mbox (mboxrd quoting), or the one mail that the stream is.

    A new mail starts at a From line after an empty line only: bodies hold such lines too.
    """
    lines: list[bytes] = []
    after_blank, mbox = True, False
    for line in stream:
        if after_blank and _FROM_LINE.match(line) and (mbox or not lines):
            mbox = True
            if lines:
                yield b"".join(_without_last_blank(lines))
            lines = []
        else:
            lines.append(_QUOTED.sub(rb"\1", line) if mbox else line)
        after_blank = not line.strip()
    if lines:
        yield b"".join(_without_last_blank(lines) if mbox else lines)


def _without_last_blank(lines: list[bytes]) -> list[bytes]:
    return lines[:-1] if lines[-1].strip() == b"" else lines
