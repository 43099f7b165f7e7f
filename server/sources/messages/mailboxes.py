"""Mails that do not come from an archive: mbox, maildir, single files, or a mail server's pipe."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from server.core.errors import DomainError

_FROM_LINE = re.compile(rb"From \S+.*\d{4}\s*$")
_QUOTED = re.compile(rb"^>(>*From )")
# Mails of 30 MB are stored whole. What is larger than this is no mail, and must not take all memory.
LARGEST_MAIL = 100 * 2**20
# A line is read in pieces of this size, as a file without any end of line must not be one.
_PIECE = 2**20
_FILES = (".eml", ".mbox")


def mails_of(path: Path) -> Iterator[bytes]:
    """Every mail of a file (mbox or one mail), or of a folder: a maildir, or files *.eml and *.mbox in it and below.

    DomainError where there is no such file, nothing to read in a folder, or a mail that is too large.
    """
    files = _files_in(path) if path.is_dir() else iter([path])
    for file in files:
        try:
            with file.open("rb") as stream:
                yield from mails_in(stream, str(file))
        except OSError as error:
            raise DomainError("no-mail", f"{file}: {error.strerror or error}") from error


def _files_in(folder: Path) -> Iterator[Path]:
    """In a fixed order. A maildir's `tmp` holds mails that are still being written."""
    boxes = [folder / name for name in ("new", "cur") if (folder / name).is_dir()]
    found = chain.from_iterable(box.iterdir() for box in boxes) if boxes else folder.rglob("*")
    files = sorted(file for file in found if file.is_file() and (boxes or file.suffix.lower() in _FILES))
    if not files and not boxes:
        raise DomainError("no-mail", f"{folder}: neither a maildir nor files {' or '.join(_FILES)}")
    return iter(files)


def mails_in(stream: BinaryIO, name: str = "standard input") -> Iterator[bytes]:
    """Every mail of an mbox (mboxrd or mboxo, also with CRLF), or the one mail that the stream is.

    A new mail starts at a From line after an empty line only: bodies hold such lines too. One mail is in memory.
    """
    mail = bytearray()
    started = mbox = False
    starts_line = after_blank = True
    while piece := stream.readline(_PIECE):
        if starts_line and after_blank and _FROM_LINE.match(piece) and (mbox or not started):
            if started:
                yield _without_last_blank(mail)
            mail, mbox, started = bytearray(), True, True
        else:
            mail += _QUOTED.sub(rb"\1", piece) if mbox and starts_line else piece
            started = True
        if len(mail) > LARGEST_MAIL:
            raise DomainError("mail-too-large", f"{name}: holds a mail larger than {LARGEST_MAIL // 2**20} MB")
        after_blank = starts_line and not piece.strip()
        starts_line = piece.endswith(b"\n")
    if started:
        yield _without_last_blank(mail) if mbox else bytes(mail)


def one_mail_in(stream: BinaryIO, name: str = "standard input") -> Iterator[bytes]:
    """The one mail that the stream is, as mail servers hand it on: with or without a From line, which is left out.

    They do not quote lines of the body that look like the start of another mail; to split there would let a sender make
    a second mail with headers that no server has seen.
    """
    mail = stream.read(LARGEST_MAIL + 1)
    if len(mail) > LARGEST_MAIL:
        raise DomainError("mail-too-large", f"{name}: holds a mail larger than {LARGEST_MAIL // 2**20} MB")
    start = mail.find(b"\n") + 1 if _FROM_LINE.match(mail[: mail.find(b"\n") + 1]) else 0
    if mail[start:]:
        yield mail[start:]


def _without_last_blank(mail: bytearray) -> bytes:
    """Without the empty line that stands before the next From line."""
    for end in (b"\n\r\n", b"\n\n"):
        if mail.endswith(end):
            return bytes(mail[: len(mail) - len(end) + 1])
    return bytes(mail)
